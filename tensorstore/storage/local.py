"""A run in a folder of this machine's file system, or of one mounted on it."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

from ..errors import AlreadyPublished, StorageError
from ..forking import call_in_child
from .base import Blocks, Buffer, ByteRange, Counts, Paths, Sink, Storage, Tails, check_path, join, translated
from .gathered_write import append_all
from .open_files import OpenFiles

_T = TypeVar("_T")

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
"""What os.link raises on a file system without hard links (exFAT, some FUSE mounts)."""

_LISTED_FOLDERS = 256
"""Folders whose files are remembered."""

_TICK_NS = 100_000_000
_COARSE_TICK_NS = 5_000_000_000

_TRUSTED_LENGTH = 1 << 20
"""Memory for so many bytes is set aside unasked."""

_LONGEST_READ = 1 << 20
"""Neighbours are read together up to this many bytes: what is cut out of them is still in the processor's cache."""

_BUFFERS = 1024
"""No more can be filled by one call."""

_LOCK_POLL_SECONDS = 0.01


class LocalStorage(Storage):
    """Files are written under a temporary name and linked to their own, so that they appear whole and only once.

    Nothing is fsynced: a crash of the process loses nothing that was published, a loss of power may. A file torn by
    that is found by the checks on reading.
    """

    is_local = True

    def __init__(self, folder: str, follow_links: bool = False) -> None:
        self.url = folder
        self._follow_links = follow_links
        # Two spellings of one folder, by way of a symbolic link, are one run to the registry of flushes.
        self._real = os.path.realpath(folder)
        self._open_files = OpenFiles(self._full)
        self._folders = _Folders()

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalStorage, (self.url, self._follow_links)

    @property
    def _flush_key(self) -> str:
        return self._real

    def _full(self, path: str) -> str:
        """The file's absolute path. Raises StorageError for one that is reached by a symbolic link, which could lead
        anywhere: into another run, say, whose files `compact` would delete."""
        check_path(path)
        if not self._follow_links:
            _refuse_links(self.url, path)
        return f"{self.url}/{path}"

    def exists_any(self) -> bool:
        with translated("", "list"):
            try:
                with os.scandir(self.url) as entries:
                    return next(entries, None) is not None
            except FileNotFoundError:
                return False
            except NotADirectoryError:
                return os.path.exists(self.url)

    def read(self, path: str) -> bytes:
        with translated(path, "read"), open(self._full(path), "rb") as file:
            return file.read()

    def read_tail(self, path: str, length: int) -> tuple[bytes, int]:
        with translated(path, "read"), open(self._full(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - length)
            return _pread(file.fileno(), start, size - start), size

    def size(self, path: str) -> int:
        with translated(path, "read"):
            return os.stat(self._full(path)).st_size

    def read_tails(self, paths: Sequence[str], length: int) -> Tails:
        return [_outcome(self.read_tail, path, length) for path in paths]

    def read_ranges(self, ranges: Sequence[ByteRange]) -> Blocks:
        found: Blocks = [b""] * len(ranges)
        opened, file = "", None
        for (path, start, length), places in _neighbours(ranges):
            if not length:
                continue
            try:
                if file is None or path != opened:
                    opened, file = path, self._open_files.get(path)
                data = _pread_owned(file.number, start, length)
            except OSError:
                with translated(path, "read"):  # entered on errors only: it costs as much as the read itself
                    raise
            for place in places:
                begin = ranges[place].start - start
                found[place] = data if len(places) == 1 else data[begin : begin + ranges[place].length]
        return found

    def read_into(self, ranges: Sequence[ByteRange], buffers: Sequence[Buffer]) -> Counts:
        got = [length for _, _, length in ranges]
        opened, file = "", None
        for places in _successive(ranges):
            path, start, _ = ranges[places[0]]
            try:
                if file is None or path != opened:
                    opened, file = path, self._open_files.get(path)
                count = os.preadv(file.number, [buffers[place] for place in places], start)
                if count != ranges[places[-1]].end - start:
                    for place in places:
                        got[place] = _fill(file.number, ranges[place].start, buffers[place])
            except OSError:
                with translated(path, "read"):
                    raise
        return got

    def list(self, folder: str) -> Paths:
        with translated(folder, "list"):
            return sorted(entry.name for entry in _entries(self._full(folder) if folder else self.url))

    def _list_after(self, folder: str, after: str) -> Paths:
        found = []
        with translated(folder, "list"):
            for sub in _entries(self._full(folder)):
                stem = f"{sub.name}/"
                if sub.is_symlink() and not self._follow_links:
                    raise _link_error(join(folder, sub.name), sub.path)
                # All of a folder lies before `after` unless `after` is in it. Comparing the folders' own names would
                # be wrong: 'a-b/x' comes before 'a/x'.
                if (stem > after or after.startswith(stem)) and sub.is_dir():
                    names = self._folders.files_in(sub.path)
                    seen = bisect_right(names, after[len(stem) :]) if after.startswith(stem) else 0
                    found += [stem + name for name in names[seen:]]
        return [join(folder, name) for name in sorted(found)]

    def create(self, path: str, data: bytes | memoryview) -> None:
        temporary = self._write_temporary(path, data)
        self._publish(temporary, path)

    def replace(self, path: str, data: bytes | memoryview) -> None:
        temporary = self._write_temporary(path, data)
        with _removed_on_error(temporary), translated(path, "write"):
            os.replace(temporary, self._full(path))

    def remove(self, path: str) -> None:
        with translated(path, "delete"), suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._full(path))

    def touch(self, path: str) -> None:
        with translated(path, "read"):
            os.utime(self._full(path))

    def written_at(self, path: str) -> tuple[float, float]:
        with translated(path, "read"):
            written = os.stat(self._full(path)).st_mtime
        # The clock of a file server may differ from this machine's: a new file shows what it says now.
        probe = self._write_temporary(path, b"")
        try:
            return written, os.stat(probe).st_mtime
        finally:
            os.unlink(probe)

    @contextmanager
    def locked(self, path: str, seconds: float) -> Iterator[None]:
        with ExitStack() as stack:
            # A lock of the process: a forked child does not inherit it, and it ends with the process.
            with suppress(OSError):
                number = os.open(self._full(path), os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
                stack.callback(os.close, number)
                _lock(number, seconds)
            yield

    def sync(self, path: str) -> None:
        file = self._full(path)
        with translated(path, "write"):
            for each in (file, os.path.dirname(file)):
                number = os.open(each, os.O_RDONLY)
                try:
                    os.fsync(number)
                finally:
                    os.close(number)

    def sink(self, path: str) -> Sink:
        return _LocalSink(self, path)

    def _temporary(self, path: str) -> str:
        folder, _, name = self._full(path).rpartition("/")
        return f"{folder}/.{name}.{secrets.token_hex(8)}.tmp"

    def _write_temporary(self, path: str, data: bytes | memoryview) -> str:
        temporary = self._temporary(path)
        with _removed_on_error(temporary), translated(path, "write"):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
            number = _in_its_folder(temporary, lambda: os.open(temporary, flags, 0o666))
            try:
                _write_all(number, data)
            finally:
                os.close(number)
        return temporary

    def _publish(self, temporary: str, path: str) -> None:
        with _removed_on_error(temporary), translated(path, "write"):
            try:
                self._link(temporary, self._full(path))
            except FileExistsError as exc:
                raise AlreadyPublished(path, "a file of this name was published before") from exc

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
    def __init__(self, storage: LocalStorage, path: str) -> None:
        self._storage, self._path, self._temporary = storage, path, storage._temporary(path)
        with _removed_on_error(self._temporary), translated(path, "write"):
            self.file = _in_its_folder(self._temporary, lambda: open(self._temporary, "xb"))  # noqa: SIM115

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        self.file.flush()
        append_all(self.file.fileno(), pieces)

    def publish(self) -> None:
        with _removed_on_error(self._temporary), translated(self._path, "write"):
            self.file.close()
        self._storage._publish(self._temporary, self._path)

    def abort(self) -> None:
        with suppress(Exception):
            self.file.close()
        with suppress(OSError):
            os.unlink(self._temporary)


class _Folders:
    """The files in folders, listed again only when a folder has changed: a reader of a live run looks before each
    answer, and half a millisecond goes into a folder of a thousand files."""

    def __init__(self) -> None:
        self._listed: dict[str, tuple[tuple[int, int], list[str]]] = {}

    def files_in(self, folder: str) -> list[str]:
        """The names of the files, sorted, without those that begin with a dot."""
        try:
            status = os.stat(folder)
        except FileNotFoundError:
            return []
        state = status.st_ino, status.st_mtime_ns
        known = self._listed.get(folder)
        if known is not None and known[0] == state:
            return known[1]
        names = sorted(entry.name for entry in _entries(folder) if _is_listed(entry))
        if _has_settled(status.st_mtime_ns):
            if len(self._listed) >= _LISTED_FOLDERS:
                self._listed.clear()
            self._listed[folder] = state, names
        return names


def _is_listed(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a folder is a file, or a folder or link in place of one, which its reader then names
    as damaged."""
    return not entry.is_dir(follow_symlinks=False) or entry.name.endswith(".parquet")


def _has_settled(changed_ns: int) -> bool:
    """Whether a change that is still to come will show in the folder's time. Two within one tick of the file system's
    clock have the same time: the tick is 10 ms at most, unless the clock of this file system shows none so fine."""
    age = time.time_ns() - changed_ns
    return age > _COARSE_TICK_NS or (age > _TICK_NS and changed_ns % 1_000_000 != 0)


def _refuse_links(folder: str, path: str) -> None:
    """Raise StorageError if any part of a path below a folder is a symbolic link. The folder itself may be one."""
    place = folder
    for part in path.split("/"):
        place = f"{place}/{part}"
        try:
            mode = os.lstat(place).st_mode
        except OSError:
            return  # where nothing is, nothing can be followed
        if stat.S_ISLNK(mode):
            raise _link_error(path, place)


def _link_error(path: str, place: str) -> StorageError:
    return StorageError(
        path,
        f"{place!r} is a symbolic link, and nothing in a run is read or written through one, as it could lead into "
        "another run: put what it leads to in its place",
    )


def _pread(number: int, start: int, length: int) -> bytes:
    """`length` bytes, or fewer where the file ends. One pread gives 2 GiB at most, and may give less."""
    data = os.pread(number, length, start)
    if len(data) == length or not data:
        return data
    parts = [data]
    got = len(data)
    while got < length and (data := os.pread(number, length - got, start + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def _pread_owned(number: int, start: int, length: int) -> bytearray:
    """The same in memory of the caller's own. No more is set aside than the file has: an index may claim anything."""
    if length > _TRUSTED_LENGTH:
        length = max(0, min(length, os.fstat(number).st_size - start))
    data = bytearray(length)
    got = os.preadv(number, [data], start) if length else 0
    if got == length:
        return data
    view = memoryview(data)
    while got < length and (count := os.preadv(number, [view[got:]], start + got)):
        got += count
    view.release()
    del data[got:]
    return data


def _fill(number: int, start: int, buffer: Buffer) -> int:
    """Read until the buffer is full or the file ends, and give how many bytes it got."""
    got = 0
    while got < len(buffer) and (count := os.preadv(number, [buffer[got:]], start + got)):
        got += count
    return got


def _successive(ranges: Sequence[ByteRange]) -> Iterator[list[int]]:
    """The places of ranges that lie one after another in a file."""
    run, path, begin, end = list[int](), "", 0, 0
    for place in sorted(range(len(ranges)), key=ranges.__getitem__):
        of, start, length = ranges[place]
        if run and start == end and of == path and end + length - begin <= _LONGEST_READ and len(run) < _BUFFERS:
            run.append(place)
        else:
            if run:
                yield run
            run, path, begin = [place], of, start
        end = start + length
    if run:
        yield run


def _neighbours(ranges: Sequence[ByteRange]) -> Iterator[tuple[ByteRange, list[int]]]:
    """The ranges in the order of files, those that overlap or touch as one, with their places in `ranges`."""
    if len(ranges) == 1:
        yield ranges[0], [0]
        return
    order = sorted(range(len(ranges)), key=ranges.__getitem__)
    places: list[int] = []
    path, begin, end = "", 0, 0
    for place in order:
        of, start, length = ranges[place]
        if places and of == path and start <= end and start + length - begin <= _LONGEST_READ:
            places.append(place)
            end = max(end, start + length)
            continue
        if places:
            yield ByteRange(path, begin, end - begin), places
        path, begin, end, places = of, start, start + length, [place]
    if places:
        yield ByteRange(path, begin, end - begin), places


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


def _write_all(number: int, data: bytes | memoryview) -> None:
    left = memoryview(data).cast("B")
    while left:
        left = left[os.write(number, left) :]


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """What is in the folder, without the names that begin with a dot."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _in_its_folder(file: str, make: Callable[[], _T]) -> _T:
    """`make` the file; where its folder is missing, make the folder first. Trying costs nothing when it is there."""
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


_renaming = threading.Lock()


@call_in_child
def _make_lock_again() -> None:
    global _renaming
    _renaming = threading.Lock()


def _rename_exclusively(temporary: str, final: str) -> None:
    """The best there is without hard links: threads exclude each other, other processes have a moment to collide in."""
    with _renaming:
        if os.path.lexists(final):
            raise FileExistsError(errno.EEXIST, "exists", final)
        os.rename(temporary, final)


def _outcome(read: Callable[..., tuple[bytes, int]], path: str, *args: Any) -> tuple[bytes, int] | Exception:
    try:
        return read(path, *args)
    except Exception as exc:  # noqa: BLE001 - returned, for each path its own
        return exc
