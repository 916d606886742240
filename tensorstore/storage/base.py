"""The interface of a run's folder, for every kind of storage.

All paths are relative to the run and POSIX, such as 'end/worker_0.json'. `open.open_storage` opens a storage; `local`,
`fsspec` and `s3` implement it.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..errors import CorruptFile
from .flush_registry import flush, is_written_by

# Aliases, because inside a class with a method `list` the name means the method.
Paths: TypeAlias = list[str]
Blocks: TypeAlias = list[bytes | bytearray]
Counts: TypeAlias = list[int]
# An array of uint8 to read into. It is Any, because its type lacks the buffer interface that os.preadv needs.
Buffer: TypeAlias = Any
Tails: TypeAlias = list[tuple[bytes, int] | Exception]


TAKEN = "a file of this name was published before"
DOCUMENT_BYTES = 32 << 20
"""The most bytes of a small file of a run, so that a damaged or malicious one cannot fill its readers' memory."""


class ByteRange(NamedTuple):
    """A byte range of one file."""

    path: str
    """The file, relative to the run."""
    start: int
    """The start of the range, in bytes from the file's start."""
    length: int
    """The number of bytes. A read returns fewer if the file ends earlier."""

    @property
    def end(self) -> int:
        """The position after the range, in bytes from the file's start."""
        return self.start + self.length


class StoredFile(NamedTuple):
    """A file of a storage, of any kind."""

    path: str
    """Relative to the run."""
    nbytes: int
    is_link: bool = False
    """True if it is a symbolic link, which is not allowed in a run."""


class FileSource(Protocol):
    """The source of a run's documents and index files: its storage, or a copy of their content."""

    url: str

    def list(self, folder: str) -> Paths: ...

    def list_after(self, folder: str, after: str = "") -> Paths: ...

    def read_document(self, path: str) -> bytes: ...

    def read_tails(self, paths: Sequence[str], length: int, /) -> Tails: ...


class Sink(ABC):
    """A new file that appears complete, at `publish`, or not at all."""

    path: str
    """The path of the file, relative to the run."""
    file: Any
    """A writable binary file; pyarrow.parquet.ParquetWriter takes it as `where`."""

    def append(self, pieces: Iterable[bytes | memoryview], nbytes: int = 0) -> None:
        """Write pieces one after another, each soon after it was produced, without copying them together.

        `nbytes` is the size of all pieces, if they are large, so that a disk can reserve space.
        """
        for piece in pieces:
            self.file.write(piece)

    @abstractmethod
    def publish(self) -> None:
        """Close the file and publish it under its name. Raises AlreadyPublished if the name is taken."""

    @abstractmethod
    def abort(self) -> None:
        """Close the file and remove it. Never raises, and does nothing after `publish`."""


class ReadableRanges(Protocol):
    """Files whose byte ranges can be read."""

    def size(self, path: str) -> int:
        """Return the file's size in bytes."""

    def read_ranges(self, ranges: Sequence[ByteRange]) -> Blocks:
        """Return the bytes of each range, in the order of `ranges`."""


class Storage(ABC):
    """The folder of one run.

    Safe to use from several threads, and from a process forked after it was opened. It can be pickled.

    A missing file raises the builtin FileNotFoundError with the relative path as its `filename`, and a folder in place
    of a file CorruptFile, where the storage has folders. Every other refusal raises StorageError.
    """

    url: str
    """The location of the run: an absolute local path, or a URL; without trailing slash, without credentials."""
    is_local: bool
    """True if it is a folder of this machine's file system."""
    keeps_time: bool = False
    """True if `written_at` uses a clock of the storage, which does not jump."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @abstractmethod
    def exists_any(self) -> bool:
        """Return whether anything exists at the url.

        Empty folders, which object stores lack, and unfinished files do not count.
        """

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the bytes of the whole file."""

    def read_document(self, path: str, most: int = DOCUMENT_BYTES) -> bytes:
        """Return the bytes of a small file, such as a JSON document of a run.

        Raises:
            CorruptFile: It has more than `most` bytes, or it is no regular file.
        """
        data = self._read_front(path, most + 1)
        if len(data) > most:
            raise too_large(path, most)
        return data

    def _read_front(self, path: str, length: int) -> bytes:
        """Return the first `length` bytes of the file, or all of a shorter one."""
        return self.read(path)[:length]

    @abstractmethod
    def read_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """Return the last `length` bytes of the file, or all of a shorter one, and the size of the whole file."""

    def size(self, path: str) -> int:
        """Return the file's size in bytes."""
        return self.read_tail(path, 1)[1]

    def read_tails(self, paths: Sequence[str], length: int) -> Tails:
        """Return `read_tail` of each file, or the exception that it raises."""
        return [self._tail_or_error(path, length) for path in paths]

    def _tail_or_error(self, path: str, length: int) -> tuple[bytes, int] | Exception:
        try:
            return self.read_tail(path, length)
        except Exception as exc:  # noqa: BLE001 - returned, for each path its own
            return exc

    @abstractmethod
    def read_ranges(self, ranges: Sequence[ByteRange]) -> Blocks:
        """Return the bytes of each range, in the order of `ranges`.

        If a file ends early there are fewer bytes, which the caller must check. The caller owns a bytearray, and may
        write to it.
        """

    @abstractmethod
    def read_into(self, ranges: Sequence[ByteRange], buffers: Sequence[Buffer]) -> Counts:
        """Read each range into the buffer of the same index, which has its length, and return the bytes in each buffer.

        These are fewer than its length if the file ends early.
        """

    def prefetch(self, paths: Sequence[str]) -> None:
        """Fetch the parts that a query of these files will read, in few requests. Does nothing on a disk."""
        del paths

    def keep_end(self, path: str, data: bytes, size: int) -> None:
        """Keep the end of a file of `size` bytes, which was read elsewhere. Does nothing on a disk."""
        del path, data, size

    @abstractmethod
    def list(self, folder: str) -> Paths:
        """Return the names of the entries directly in `folder`, sorted; none if the folder is missing.

        Names that begin with a dot are left out: unfinished files have such names.
        """

    def list_after(self, folder: str, after: str = "") -> Paths:
        """Return the paths of the files `folder`/<sub>/<file> whose '<sub>/<file>' is greater than `after`, sorted.

        Lists the storage at each call. If this process writes to the run, its writers flush first.
        """
        flush(self._flush_key)
        return self._list_after(check_path(folder), after)

    def walk(self) -> Iterator[StoredFile]:
        """Yield every file in the folder, unfinished ones included where the storage shows them, by path."""
        yield from self._walk("")

    def _walk(self, folder: str) -> Iterator[StoredFile]:
        for name in self.list(folder):
            path = join(folder, name)
            inside = list(self._walk(path))
            with suppress(FileNotFoundError):  # removed since it was listed
                yield from inside or [StoredFile(path, self.size(path))]

    def is_written_here(self) -> bool:
        """Return whether the calling thread writes to this run, so that it cannot wait for a new step."""
        return is_written_by(self._flush_key, threading.get_ident())

    @abstractmethod
    def create(self, path: str, data: bytes | memoryview) -> None:
        """Publish a new file. If several processes create the same file, exactly one succeeds.

        Raises:
            AlreadyPublished: The name is taken.
        """

    @abstractmethod
    def replace(self, path: str, data: bytes | memoryview) -> None:
        """Write the file, whether or not it exists. Readers see the complete old file or the complete new one."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Delete the file, if it exists."""

    @abstractmethod
    def touch(self, path: str) -> None:
        """Set the time at which the file was written to now. Raises FileNotFoundError for a missing file."""

    @abstractmethod
    def written_at(self, path: str) -> tuple[float, float]:
        """Return the time when the file was last written or touched, and the current time, in seconds since 1970.

        Both are by the storage's clock, if it has one.
        """

    @contextmanager
    def locked(self, path: str, seconds: float) -> Iterator[None]:
        """Exclude other processes that lock the same file. A process waits at most `seconds`, and then continues.

        Only file systems have locks. Elsewhere, and for a missing file, nothing is locked.
        """
        del path, seconds
        yield

    def check_writable(self) -> None:  # noqa: B027
        """Raise ConfigurationError if it is known, without a request, that nothing can be written."""

    def sync(self, path: str) -> None:
        """Make a published file survive a loss of power. Object stores do that by themselves."""
        del path

    @abstractmethod
    def sink(self, path: str) -> Sink:
        """Return a new file to write into, which appears at `path` when it is published."""

    @property
    def _flush_key(self) -> str:
        return self.url

    @abstractmethod
    def _list_after(self, folder: str, after: str) -> Paths:
        """Return the result of `list_after`, without the flush."""


def too_large(path: str, most: int) -> CorruptFile:
    """Return the error of a file that is too large for a small file."""
    return CorruptFile(path, f"it has more than {most:,} bytes, and no such file of a run has as many")


def check_path(path: str) -> str:
    """Return the path. Raises ValueError for one that leaves the run, as a forged index might contain."""
    if "\0" in path or not _BAD_PARTS.isdisjoint(path.split("/")):
        raise ValueError(f"not a path inside a run: {path!r}")
    return path


_BAD_PARTS = frozenset({"", ".", ".."})


def join(path: str, *parts: str) -> str:
    """Join parts with slashes. An empty first part is the run's own folder."""
    return "/".join((path, *parts) if path else parts)
