"""Positional reads of local files, which are kept open."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from .. import forking
from .base import Buffer, ByteRange

_OPEN_FILES = 64
"""Descriptors kept open for each run: most reads of a training run go to a few recent files."""
_TRUSTED_LENGTH = 1 << 20
"""The most bytes that are allocated without checking the file's size."""
_LONGEST_READ = 1 << 20
"""Adjacent ranges on a disk are read together up to this many bytes, which fit into the processor's cache."""
_BUFFERS = 1024
"""The most buffers that one system call fills."""


def open_to_read(file: str, flags: int = 0) -> int:
    """Open a file. A named pipe, which does not belong into a run, reads as empty instead of waiting for a writer."""
    return os.open(file, flags | os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def read_at(number: int, start: int, length: int) -> bytes:
    """Return `length` bytes from `start` on, or fewer at the end of the file. One pread returns at most 2 GiB."""
    data = os.pread(number, length, start)
    if len(data) == length or not data:
        return data
    parts = [data]
    got = len(data)
    while got < length and (data := os.pread(number, length - got, start + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def read_owned(number: int, start: int, length: int) -> bytearray:
    """Return the same bytes as `read_at`, in memory that belongs to the caller.

    An index may claim any length, so a large one is first limited to the file's size.
    """
    if length > _TRUSTED_LENGTH:
        length = max(0, min(length, os.fstat(number).st_size - start))
    data = bytearray(length)
    got = os.preadv(number, [data], start) if length else 0
    if got == length:
        return data
    with memoryview(data) as view:
        got = fill(number, start, view)
    del data[got:]
    return data


def fill(number: int, start: int, buffer: Buffer) -> int:
    """Read until the buffer is full or the file ends, and return the number of bytes."""
    got = 0
    while got < len(buffer) and (count := os.preadv(number, [buffer[got:]], start + got)):
        got += count
    return got


def successive(ranges: Sequence[ByteRange]) -> list[list[int]]:
    """Return the indices of ranges that follow each other in a file without a gap."""
    if len(ranges) == 1:  # as for every `value()`
        return [[0]]
    found, run, path, end, last = list[list[int]](), list[int](), "", 0, 0
    for index in sorted(range(len(ranges)), key=ranges.__getitem__):
        of, start, length = ranges[index]
        if start != end or of != path or start + length > last or len(run) == _BUFFERS:
            run, path, last = [], of, start + _LONGEST_READ
            found.append(run)
        run.append(index)
        end = start + length
    return found


def neighbors(ranges: Sequence[ByteRange]) -> Iterator[tuple[ByteRange, list[int]]]:
    """Yield the ranges by file and position, with their indices in `ranges`. Adjoining ones are joined."""
    if len(ranges) == 1:
        yield ranges[0], [0]
        return
    order = sorted(range(len(ranges)), key=ranges.__getitem__)
    indices: list[int] = []
    path, begin, end = "", 0, 0
    for index in order:
        of, start, length = ranges[index]
        if indices and of == path and start <= end and start + length - begin <= _LONGEST_READ:
            indices.append(index)
            end = max(end, start + length)
            continue
        if indices:
            yield ByteRange(path, begin, end - begin), indices
        path, begin, end, indices = of, start, start + length, [index]
    if indices:
        yield ByteRange(path, begin, end - begin), indices


class Descriptor:
    """An open file. It is closed when its last holder releases it, so never during a read."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if hasattr(self, "number"):
            close(self.number)


class OpenFiles:
    """The most recently read files, which are kept open because opening takes longer than reading a small value."""

    def __init__(self, opened: Callable[[str], int]) -> None:
        """Keep files open. `opened` opens a file, and returns its number."""
        self._open = opened
        self.after_fork()
        forking.register(self)

    def after_fork(self) -> None:
        """Begin without files, because another thread may have held the lock at the fork."""
        self._lock = threading.Lock()
        self._files: OrderedDict[str, Descriptor] = OrderedDict()

    def get(self, file: str) -> Descriptor:
        """Return the open file. The caller holds it for as long as it reads."""
        with self._lock:
            found = self._files.get(file)
            if found is not None:
                self._files.move_to_end(file)
        # A file without links was deleted, and may have been replaced, so that its bytes would be wrong.
        if found is None or not os.fstat(found.number).st_nlink:
            found = self._keep(file)
        return found

    def _keep(self, file: str) -> Descriptor:
        with self._lock:
            self._files.pop(file, None)
        opened = self._opened(file)
        with self._lock:
            self._files[file] = opened
            self._files.move_to_end(file)
            dropped = [self._files.popitem(last=False) for _ in range(len(self._files) - _OPEN_FILES)]
        del dropped  # closed here, outside of the lock, unless another thread still reads it
        return opened

    def _opened(self, file: str) -> Descriptor:
        try:
            return Descriptor(self._open(file))
        except OSError as exc:
            if exc.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        with self._lock:
            self._files.clear()  # the process has no descriptors left: release ours, and try once more
        return Descriptor(self._open(file))
