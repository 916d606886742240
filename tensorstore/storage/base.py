"""What a run's folder must be able to do, whatever holds it: the seam between the store and the world of files.

All paths given and returned are relative to the run and POSIX, such as 'end/worker_0.json'. `storage` opens one,
`local_storage` and `remote_storage` are the two kinds there are. Here stand what they share: the abstract classes, the
check of a path, the translation of foreign errors, and the registry of flushes.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ..errors import CorruptFile, StorageError, TensorTrialError

log = logging.getLogger(__name__)

Action = Literal["read", "write", "list", "delete"]
# Aliases, because inside a class with a method `list` that name is the method.
Paths: TypeAlias = list[str]
Blocks: TypeAlias = list[bytes | bytearray]
Counts: TypeAlias = list[int]
# An array of uint8, to read into. Its type does not tell that it is a buffer to os.preadv.
Buffer: TypeAlias = Any
Tails: TypeAlias = list[tuple[bytes, int] | Exception]


class ByteRange(NamedTuple):
    """A part of one file."""

    path: str
    """The file, relative to the run."""
    start: int
    """Where the part starts, in bytes from the file's start."""
    length: int
    """How many bytes it has. Of a file that ends before, only what is there is given."""

    @property
    def end(self) -> int:
        """Where the part ends, in bytes from the file's start."""
        return self.start + self.length


class Sink(ABC):
    """A new file that appears under its name whole, at `publish`, or never."""

    file: Any
    """What a pyarrow.parquet.ParquetWriter takes as `where`."""

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write pieces one after another, from where they lie."""
        for piece in pieces:
            self.file.write(piece)

    @abstractmethod
    def publish(self) -> None:
        """Close the file and give it its name; AlreadyPublished if the name is taken."""

    @abstractmethod
    def abort(self) -> None:
        """Close the file and leave nothing behind. Never raises, and does nothing after `publish`."""


class Storage(ABC):
    """The folder of one run. Safe to use from several threads, and from a process forked after it was opened. Another
    process gets one by pickle.

    A file that is not there raises the builtin FileNotFoundError with the relative path as its `filename`; whatever
    else the file system or the object store refuses raises StorageError.
    """

    url: str
    """Where the run is: an absolute local path, or a URL; without trailing slash, without credentials."""
    is_local: bool
    """Whether it is a folder of this machine's file system."""
    keeps_time: bool = False
    """Whether `written_at` is by a clock of the storage's own, which does not jump."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @abstractmethod
    def exists_any(self) -> bool:
        """Whether there is anything at all at the url. An empty folder is nothing, as in an object store."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The whole file."""

    @abstractmethod
    def read_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """The last `length` bytes of the file, or all of a shorter one, and the size of the whole file."""

    def size(self, path: str) -> int:
        """How many bytes the file has."""
        return self.read_tail(path, 1)[1]

    @abstractmethod
    def read_tails(self, paths: Sequence[str], length: int) -> Tails:
        """`read_tail` of many files; where one fails, its exception stands in its place."""

    @abstractmethod
    def read_ranges(self, ranges: Sequence[ByteRange]) -> Blocks:
        """The bytes of each range, in the order asked for. A file that ends early gives fewer; the caller checks.

        A bytearray is the caller's own, to keep and to write to.
        """

    def read_into(self, ranges: Sequence[ByteRange], buffers: Sequence[Buffer]) -> Counts:
        """Read each range into the buffer of its length, and give how many bytes each got. A file that ends
        early gives fewer; the caller checks."""
        blocks = self.read_ranges(ranges)
        for buffer, block in zip(buffers, blocks, strict=True):
            buffer[: len(block)] = np.frombuffer(block, np.uint8)
        return list(map(len, blocks))

    def prefetch(self, paths: Sequence[str]) -> None:
        """A query will read these files: fetch together what it would fetch one by one. On a disk there is nothing to
        do."""
        del paths

    @abstractmethod
    def list(self, folder: str) -> Paths:
        """The names of the entries directly in `folder`, sorted; none if there is no such folder.

        Names that begin with a dot are left out: unfinished files have such names.
        """

    def list_after(self, folder: str, after: str = "") -> Paths:
        """The paths of the files `folder`/<sub>/<file> whose '<sub>/<file>' is greater than `after`, sorted.

        Asks the storage anew each time. Whoever writes to this run in this process is first asked to flush.
        """
        flush(self._flush_key)
        return self._list_after(check_path(folder), after)

    def is_written_here(self) -> bool:
        """Return whether the calling thread writes to this run: no step comes while it waits for one."""
        return is_written_by(self._flush_key, threading.get_ident())

    @abstractmethod
    def create(self, path: str, data: bytes | memoryview) -> None:
        """Publish a new file, whole; AlreadyPublished if the name is taken. Of several racing, exactly one wins."""

    @abstractmethod
    def replace(self, path: str, data: bytes | memoryview) -> None:
        """Write the file whole, whether or not there is one: readers see the old or the new, nothing between."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Delete the file, if there is one."""

    @abstractmethod
    def touch(self, path: str) -> None:
        """Set the time at which the file was written to now. One that was removed raises FileNotFoundError."""

    @abstractmethod
    def written_at(self, path: str) -> tuple[float, float]:
        """Return when the file was last written or touched, and what time it is now, by the storage's own clock as far
        as there is one. Both in seconds since 1970."""

    @contextmanager
    def locked(self, path: str, seconds: float) -> Iterator[None]:
        """Keep other processes out of such a block on the same file, for which they wait so many seconds at most. Only
        file systems have locks; elsewhere, and of a file that is gone, nobody waits."""
        del path, seconds
        yield

    def sync(self, path: str) -> None:
        """Have a published file survive a loss of power, too. Object stores see to that themselves."""
        del path

    @abstractmethod
    def sink(self, path: str) -> Sink:
        """A new file to write into, which appears at `path` when it is published."""

    @property
    def _flush_key(self) -> str:
        return self.url

    @abstractmethod
    def _list_after(self, folder: str, after: str) -> Paths:
        """`list_after` without the flush."""


def check_path(path: str) -> str:
    """Refuse a path that could lead out of the run. Ours never do; one from a forged index might."""
    if "\0" in path or not _BAD_PARTS.isdisjoint(path.split("/")):
        raise ValueError(f"not a path inside a run: {path!r}")
    return path


_BAD_PARTS = frozenset({"", ".", ".."})


def join(path: str, *parts: str) -> str:
    """Join with slashes; an empty first part is the run's own folder."""
    return "/".join((path, *parts) if path else parts)


# ---------------------------------------------------------------------------------------------------------- flushes
# A reader in the writing process must see every closed step at once, and the two meet nowhere but here. So the writer
# registers its flush under the run's url, and whoever lists that run calls it first.

_flushes: dict[str, dict[object, tuple[Callable[[], None], Callable[[], int]]]] = {}
_flushes_lock = threading.Lock()


def add_flush(key: str, callback: Callable[[], None], written_by: Callable[[], int]) -> Callable[[], None]:
    """Call `callback` before each listing of the run `key` in this process; gives the function that ends this.
    `written_by` gives the thread that writes the steps."""
    token = object()
    with _flushes_lock:
        _flushes.setdefault(key, {})[token] = callback, written_by

    def unregister() -> None:
        with _flushes_lock:
            callbacks = _flushes.get(key, {})
            callbacks.pop(token, None)
            if not callbacks:
                _flushes.pop(key, None)

    return unregister


def flush(key: str) -> None:
    """Call the flushes of the run `key`. Not under the lock: a flush may take seconds, and may itself list the run."""
    with _flushes_lock:
        callbacks = list(_flushes.get(key, {}).values())
    for callback, _ in callbacks:
        try:
            callback()
        except Exception:
            log.exception("the writer of %s failed to flush; its last steps may not be seen yet", key)


def is_written_by(key: str, thread: int) -> bool:
    """Return whether a thread of this process writes the steps of the run `key`."""
    with _flushes_lock:
        return any(written_by() == thread for _, written_by in _flushes.get(key, {}).values())


def _forget_flushes() -> None:
    # A forked child has the parent's callbacks but not its writer thread: calling one would wait for ever.
    global _flushes_lock
    _flushes_lock = threading.Lock()
    _flushes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_flushes)


# ----------------------------------------------------------------------------------------------------------- errors


@contextmanager
def translated(path: str, action: Action, where: str = "") -> Iterator[None]:
    """Raise the errors of file systems, fsspec, botocore and pyarrow as ours.

    `where` names the place in words, such as "bucket 'b', key 'k'"; nothing else of the configuration is told, so that
    no credential ever gets into a message.
    """
    try:
        yield
    except TensorTrialError:
        raise
    except Exception as exc:
        if not _is_foreign(exc):
            raise
        raise _translation(exc, path, action, where) from exc


def http_status(exc: BaseException | None) -> int | None:
    """The HTTP status behind an exception of s3fs or botocore, if there is one."""
    while exc is not None:
        response = getattr(exc, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return int(status) if status else None
        exc = exc.__cause__
    return None


def missing(path: str) -> FileNotFoundError:
    """The error of a file that is not there."""
    return FileNotFoundError(errno.ENOENT, "no such file in the run", path)


def _is_foreign(exc: Exception) -> bool:
    # By the module's name, because none of these is imported for a local run.
    families = {cls.__module__.partition(".")[0] for cls in type(exc).__mro__}
    return isinstance(exc, OSError) or not families.isdisjoint({"botocore", "aiobotocore", "aiohttp", "fsspec"})


def _translation(exc: Exception, path: str, action: Action, where: str) -> Exception:
    absent = isinstance(exc, (FileNotFoundError, NotADirectoryError, IsADirectoryError))
    if isinstance(exc, IsADirectoryError) and action == "read" and not where:
        return CorruptFile(path, "it is a folder, and not a file")
    if absent and action == "read":
        return missing(path)
    error = StorageError(path, _sentence(exc, action, where))
    # The file's relative path stays in .path; .errno lets a caller tell a full disk from the rest.
    error.errno = getattr(exc, "errno", None)
    return error


def _sentence(exc: Exception, action: Action, where: str) -> str:
    place = f" ({told})" if (told := where or _named(exc, action)) else ""
    number, kind = getattr(exc, "errno", None), type(exc).__name__
    holder = "the bucket" if where else "the file system"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full" if number == errno.ENOSPC else "the disk quota is used up"
    if isinstance(exc, PermissionError) or http_status(exc) == 403:
        return f"{holder} refuses the {action}{place}: {_reason(exc)}"
    if kind in ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError"):
        return f"no usable credentials for the object store were found{place}; pass key and secret as storage_options"
    if kind in ("EndpointConnectionError", "ConnectTimeoutError", "ClientConnectorError"):
        return f"the object store cannot be reached{place}; is endpoint_url right?"
    if isinstance(exc, FileNotFoundError) and where:
        return f"cannot {action}, the bucket does not exist{place}"
    return f"cannot {action}{place}: {_reason(exc)}"


def _named(exc: Exception, action: Action) -> str:
    """The file that the file system speaks of; of one that is written the folder, because it is not yet called so."""
    name = getattr(exc, "filename", None)
    if not isinstance(name, str):
        return ""
    return os.path.dirname(name) if action == "write" else name


def _reason(exc: Exception) -> str:
    """The foreign error in a few words. Its own text is used only where it cannot hold a URL with a signature."""
    if http_status(exc) is not None:
        cause: BaseException | None = exc
        while cause is not None and not hasattr(cause, "response"):
            cause = cause.__cause__
        details = getattr(cause, "response", {}).get("Error", {})
        return f"{details.get('Code', 'error')}, HTTP {http_status(exc)}"
    if isinstance(exc, OSError) and exc.errno and exc.strerror:
        return f"{exc.strerror}"
    return type(exc).__name__
