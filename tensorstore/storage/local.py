"""Storage in a folder of this machine's file systems."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import stat
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

from ..errors import AlreadyPublished, ConfigurationError, CorruptFile, StorageError
from ..forking import Lock, lazy
from .base import (
    DOCUMENT_BYTES,
    TAKEN,
    Blocks,
    Buffer,
    ByteRange,
    Counts,
    Paths,
    Sink,
    Storage,
    StoredFile,
    check_path,
    join,
    too_large,
)
from .durability import DurableFolders, sync_file
from .foreign_errors import missing, translated
from .gathered_write import BoundedWrites, append_all
from .kept_reads import Entries, KeptReads, entries
from .open_files import Descriptor, OpenFiles, fill, neighbors, open_to_read, read_at, read_owned, successive

_T = TypeVar("_T")

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
"""The errors of os.link on a file system without hard links (exFAT, some FUSE mounts)."""

_LOCK_POLL_SECONDS = 0.01
_MOST_KEPT_BYTES = 1 << 20
"""A larger document is read again: only a manifest is so large, which is read once."""
_ANNOUNCED = 64 << 10
"""A read of at least so many bytes, or of several ranges, is announced to the system if it is not in the page cache."""


class LocalStorage(Storage):
    """A local folder. Files are written under a temporary name and then linked, so that they appear complete and once.

    Unless `durable`, nothing is synced: a crash of the process loses no published file, but a loss of power may. The
    checks on reading find truncated files. With `durable`, a file is synced before it gets its name, and the folders
    above it before the publishing call returns.
    """

    is_local = True

    def __init__(self, folder: str, follow_links: bool = False, durable: bool = False) -> None:
        self.url = folder
        self._follow_links = follow_links
        self._durable = durable
        # A folder and a symbolic link to it are one run to the registry of flushes.
        self._real = os.path.realpath(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalStorage, (self.url, self._follow_links, self._durable)

    # A storage that only writes lists no folder and keeps no file open, and few are durable.

    @lazy
    def _durable_folders(self) -> DurableFolders:
        return DurableFolders(self.url)

    @lazy
    def _open_files(self) -> OpenFiles:
        return OpenFiles(self._open)

    @lazy
    def _kept(self) -> KeptReads:
        return KeptReads()

    @lazy
    def _has_device(self) -> bool:
        """True if the run is on a disk of this machine, and not on a file server, as far as is known."""
        return sys.platform == "linux" and os.major(os.stat(self.url).st_dev) > 0

    @property
    def _flush_key(self) -> str:
        return self._real

    def _full(self, path: str) -> str:
        """Return the file's absolute path.

        Raises StorageError for a path through a symbolic link, which could lead into another run, whose files `compact`
        would then delete.
        """
        check_path(path)
        if not self._follow_links:
            _refuse_links(self.url, path)
        return f"{self.url}/{path}"

    def _open(self, path: str) -> int:
        """Open a file or folder to read. Raises StorageError for a path through a symbolic link, as `_full` does."""
        if self._follow_links:
            return open_to_read(f"{self.url}/{check_path(path)}")
        if folder := check_path(path).rpartition("/")[0]:
            _refuse_links(self.url, folder)
        try:
            return open_to_read(f"{self.url}/{path}", os.O_NOFOLLOW)
        except FileNotFoundError:
            raise
        except OSError:
            _refuse_links(self.url, path)
            raise

    def _status(self, path: str, are_folders_checked: bool = False) -> os.stat_result:
        """Return the present state of a file or folder. Raises StorageError for a path through a symbolic link."""
        if not self._has_device:
            # What a file server shows of a file that is not open may be old.
            number = open_to_read(f"{self.url}/{path}") if are_folders_checked else self._open(path)
            try:
                return os.fstat(number)
            finally:
                os.close(number)
        if not are_folders_checked and (folder := check_path(path).rpartition("/")[0]) and not self._follow_links:
            _refuse_links(self.url, folder)
        found = os.stat(f"{self.url}/{path}", follow_symlinks=self._follow_links)
        if stat.S_ISLNK(found.st_mode):
            raise _link_error(path, f"{self.url}/{path}")
        return found

    def exists_any(self) -> bool:
        with translated("", "list"):
            is_file = os.path.exists(self.url) and not os.path.isdir(self.url)
            return is_file or any("/." not in f"/{file.path}" for file in self.walk())

    def read(self, path: str) -> bytes:
        return self._read_whole(path, sys.maxsize)

    def read_document(self, path: str, most: int = DOCUMENT_BYTES) -> bytes:
        try:
            status = self._status(path) if self._has_device else None
        except FileNotFoundError as exc:
            raise missing(path) from exc
        except OSError:
            with translated(path, "read"):  # only now, because refreshes read a document often
                raise
        if status is None or status.st_size > _MOST_KEPT_BYTES:
            return self._read_whole(path, most)
        return self._kept.get((path, most), status, lambda: self._read_whole(path, most))

    def _read_whole(self, path: str, most: int) -> bytes:
        try:
            number = self._open(path)  # a file object makes six more system calls
            try:
                found = os.fstat(number)
                if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
                    raise CorruptFile(path, "it is no regular file")
                if found.st_size > most:
                    raise too_large(path, most)
                return read_at(number, 0, found.st_size)
            finally:
                os.close(number)
        except OSError:
            with translated(path, "read"):
                raise

    def read_tail(self, path: str, length: int) -> tuple[bytes, int]:
        with translated(path, "read"):
            file = Descriptor(self._open(path))
            size = os.fstat(file.number).st_size
            start = max(0, size - length)
            return read_at(file.number, start, size - start), size

    def size(self, path: str) -> int:
        with translated(path, "read"):
            return os.stat(self._full(path)).st_size

    def read_ranges(self, ranges: Sequence[ByteRange]) -> Blocks:
        found: Blocks = [b""] * len(ranges)
        opened, file = "", None
        for (path, start, length), indices in neighbors(ranges):
            if not length:
                continue
            try:
                if file is None or path != opened:
                    opened, file = path, self._open_files.get(path)
                data = read_owned(file.number, start, length)
            except OSError:
                with translated(path, "read"):  # only now: it takes as long as the read
                    raise
            for index in indices:
                begin = ranges[index].start - start
                found[index] = data if len(indices) == 1 else data[begin : begin + ranges[index].length]
        return found

    def read_into(self, ranges: Sequence[ByteRange], buffers: Sequence[Buffer]) -> Counts:
        got, together = list(map(len, buffers)), successive(ranges)
        if len(got) > 1 or (got and got[0] >= _ANNOUNCED):
            self._announce(ranges, together)
        opened, file = "", None
        for indices in together:
            path, start, _ = ranges[indices[0]]
            _, last, length = ranges[indices[-1]]
            try:
                if file is None or path != opened:
                    opened, file = path, self._open_files.get(path)
                count = os.preadv(file.number, list(map(buffers.__getitem__, indices)), start)
                if count != last + length - start:
                    for index in indices:
                        got[index] = fill(file.number, ranges[index].start, buffers[index])
            except OSError:
                with translated(path, "read"):
                    raise
        return got

    def _announce(self, ranges: Sequence[ByteRange], together: Sequence[list[int]]) -> None:
        """Let the system read ranges at once, unless it has the first. By itself it reads one by one, and too far."""
        first = ranges[together[0][-1]]
        with suppress(OSError, OverflowError, AttributeError):  # an error that reading reports, or not Linux
            try:
                os.preadv(self._open_files.get(first.path).number, [bytearray(1)], first.end - 1, os.RWF_NOWAIT)
            except BlockingIOError:
                for indices in together:
                    path, start, _ = ranges[indices[0]]
                    length = ranges[indices[-1]].end - start
                    os.posix_fadvise(self._open_files.get(path).number, start, length, os.POSIX_FADV_WILLNEED)

    def list(self, folder: str) -> Paths:
        try:
            return [*self._listed(folder, _names)] if folder else _names(entries(self.url))
        except OSError:
            with translated(folder, "list"):
                raise

    def walk(self) -> Iterator[StoredFile]:
        with translated("", "list"):
            yield from _files_below(self.url, "")

    def _list_after(self, folder: str, after: str) -> Paths:
        found = list[str]()
        try:
            for sub in self._listed(folder, list):
                stem = f"{sub.name}/"
                if sub.is_symlink() and not self._follow_links:
                    raise _link_error(join(folder, sub.name), sub.path)
                # All files of a folder precede `after` unless `after` is in it. Comparing the folders' names would be
                # wrong, because 'a-b/x' precedes 'a/x'.
                if (stem > after or after.startswith(stem)) and sub.is_dir():
                    names = self._listed(f"{folder}/{sub.name}", _names_of_files, are_folders_checked=True)
                    seen = bisect_right(names, after[len(stem) :]) if after.startswith(stem) else 0
                    found += [f"{folder}/{stem}{name}" for name in names[seen:]]
        except OSError:
            with translated(folder, "list"):
                raise
        return sorted(found)

    def _listed(
        self, folder: str, what: Callable[[Entries], Sequence[_T]], are_folders_checked: bool = False
    ) -> Sequence[_T]:
        try:
            status = self._status(folder, are_folders_checked)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return self._kept.get((folder, what), status, lambda: what(entries(f"{self.url}/{folder}")))

    def create(self, path: str, data: bytes | memoryview) -> None:
        temporary = self._write_temporary(path, data, self._durable)
        self.publish_file(temporary, path)

    def replace(self, path: str, data: bytes | memoryview) -> None:
        with translated(path, "write"):
            file = self._full(path)
            # It is always synced, because after a loss of power the new name could be that of an empty file, and the
            # old file gone.
            synced = self._durable or os.path.lexists(file)
        temporary = self._write_temporary(path, data, synced)
        with _removed_on_error(temporary), translated(path, "write"):
            os.replace(temporary, file)
            self._sync_names(file)

    def remove(self, path: str) -> None:
        with translated(path, "delete"), suppress(FileNotFoundError, NotADirectoryError):
            file = self._full(path)
            os.unlink(file)
            self._sync_names(file)

    def touch(self, path: str) -> None:
        with translated(path, "read"):
            os.utime(self._full(path))

    def written_at(self, path: str) -> tuple[float, float]:
        with translated(path, "read"):
            written = os.stat(self._full(path)).st_mtime
        # The clock of a file server may differ from this machine's, so a new file shows its time.
        probe = self._write_temporary(path, b"", synced=False)
        try:
            return written, os.stat(probe).st_mtime
        finally:
            os.unlink(probe)

    @contextmanager
    def locked(self, path: str, seconds: float) -> Iterator[None]:
        with ExitStack() as stack:
            # The lock belongs to the process: a forked child does not inherit it, and it ends with the process.
            with suppress(OSError):
                number = os.open(self._full(path), os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
                stack.callback(os.close, number)
                _lock(number, seconds)
            yield

    def check_writable(self) -> None:
        folder = self.url
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        if not os.path.isdir(folder):
            raise ConfigurationError(f"a run cannot be saved to {self.url}: {folder} is not a folder")
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise ConfigurationError(f"a run cannot be saved to {self.url}: this process may not write to {folder}")

    def sync(self, path: str) -> None:
        file = self._full(path)
        with translated(path, "write"):
            with open(file, "rb", buffering=0) as opened:
                sync_file(opened.fileno())
            self._durable_folders.sync_names(os.path.dirname(file))

    def sink(self, path: str) -> Sink:
        return _LocalSink(self, path, self._durable)

    def temporary_name(self, path: str) -> str:
        """Return the name of a new file in the folder of a path, which no reader lists."""
        folder, _, name = self._full(path).rpartition("/")
        return f"{folder}/.{name}.{os.urandom(8).hex()}.tmp"

    def _sync_names(self, file: str) -> None:
        if self._durable:
            self._durable_folders.sync_names(os.path.dirname(file))

    def _write_temporary(self, path: str, data: bytes | memoryview, synced: bool) -> str:
        temporary = self.temporary_name(path)
        with _removed_on_error(temporary), translated(path, "write"):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
            number = _in_its_folder(temporary, lambda: os.open(temporary, flags, 0o666))
            try:
                append_all(number, [memoryview(data).cast("B")], len(data))
                if synced:
                    sync_file(number)
            finally:
                os.close(number)
        return temporary

    def publish_file(self, temporary: str, path: str) -> None:
        """Publish a temporary file under its path."""
        with _removed_on_error(temporary), translated(path, "write"):
            file = self._full(path)
            try:
                self._link(temporary, file)
            except FileExistsError as exc:
                raise AlreadyPublished(path, TAKEN) from exc
            self._sync_names(file)

    @staticmethod
    def _link(temporary: str, final: str) -> None:
        try:
            os.link(temporary, final)
        except OSError as exc:
            if exc.errno not in _NO_LINKS:
                raise
            _rename_exclusively(temporary, final)
        else:
            os.unlink(temporary)


class _LocalSink(Sink):
    """A file under a temporary name until it is published."""

    def __init__(self, storage: LocalStorage, path: str, durable: bool) -> None:
        self._storage, self.path, self._durable = storage, path, durable
        self._temporary = storage.temporary_name(path)
        with _removed_on_error(self._temporary), translated(path, "write"):
            file = _in_its_folder(self._temporary, lambda: BoundedWrites(self._temporary, "xb"))
            self.file = io.BufferedWriter(file)

    def append(self, pieces: Iterable[bytes | memoryview], nbytes: int = 0) -> None:
        with translated(self.path, "write"):
            self.file.flush()
            append_all(self.file.fileno(), pieces, nbytes)

    def publish(self) -> None:
        with _removed_on_error(self._temporary), translated(self.path, "write"), self.file:
            if self._durable:
                self.file.flush()
                sync_file(self.file.fileno())
        self._storage.publish_file(self._temporary, self.path)

    def abort(self) -> None:
        with suppress(Exception):
            self.file.close()
        with suppress(OSError):
            os.unlink(self._temporary)


def _names(found: Iterable[os.DirEntry[str]]) -> Paths:
    return sorted([entry.name for entry in found])


def _names_of_files(found: Iterable[os.DirEntry[str]]) -> Paths:
    """Return the names of the files, and of folders and links in the place of a file, which are reported when read."""
    return _names([each for each in found if each.name.endswith(".parquet") or not each.is_dir(follow_symlinks=False)])


def _files_below(folder: str, prefix: str) -> Iterator[StoredFile]:
    try:
        with os.scandir(folder) as found:
            below = sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in below:
        path = f"{prefix}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(entry.path, f"{path}/")
            continue
        with suppress(FileNotFoundError):  # the file was removed after the listing
            yield StoredFile(path, entry.stat(follow_symlinks=False).st_size, entry.is_symlink())


def _refuse_links(folder: str, path: str) -> None:
    """Raise StorageError if any part of a path below a folder is a symbolic link. The folder itself may be one."""
    entry = folder
    for part in path.split("/"):
        entry = f"{entry}/{part}"
        try:
            mode = os.lstat(entry).st_mode
        except OSError:
            return  # a missing file cannot be followed
        if stat.S_ISLNK(mode):
            raise _link_error(path, entry)


def _link_error(path: str, entry: str) -> StorageError:
    return StorageError(
        path,
        f"{entry!r} is a symbolic link, and nothing in a run is read or written through one, as it could lead into "
        "another run; replace the link by a copy of its target",
    )


def _lock(number: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError):
            if time.monotonic() >= deadline:
                raise
            time.sleep(_LOCK_POLL_SECONDS)


def _in_its_folder(file: str, make: Callable[[], _T]) -> _T:
    """Return `make()`, the new file. If its folder is missing, create the folder and try again."""
    try:
        return make()
    except FileNotFoundError:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        return make()


@contextmanager
def _removed_on_error(temporary: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


_renaming = Lock()


def _rename_exclusively(temporary: str, final: str) -> None:
    """Rename without hard links. Threads exclude each other; processes may collide in a short moment."""
    with _renaming:
        if os.path.lexists(final):
            raise FileExistsError(errno.EEXIST, "exists", final)
        os.rename(temporary, final)
