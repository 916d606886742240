"""Large writes to files of this machine that bypass the page cache, where that is faster.

Linux copies what a program writes into the page cache, for which it needs fresh pages. On a virtual machine whose
unused memory goes back to the host, a fresh page takes up to 12 us, once what was freed lately is used up: 16 MB then
take 50 ms of the processor instead of 5. A direct write (O_DIRECT) lets the disk read the memory of the program. 16 MB
take 3 ms of the processor, one copy into an aligned buffer included, and about 10 ms of waiting for the disk.

Which of the two costs less depends on the machine, the disk and the hour, so both are measured while they are used.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from .gathered_write import append_all, reserve

DIRECT_VARIABLE = "TENSORTRIAL_DIRECT_WRITES"
"""The environment variable that chooses: 0 never writes directly, 1 always does, any other value measures."""
PART_BYTES = 4 << 20
"""What is written at once, and the least that may be written directly."""
_ALIGNED = max(4096, mmap.PAGESIZE)
"""Position, length and memory of a direct write are multiples of the block size of the disk, which is at most this."""
_O_DIRECT: int = getattr(os, "O_DIRECT", 0)
_LEAST_SAVING = 1 / 3
"""The most of the processor's time that a direct write may take, as a part of what the page cache takes."""
_FIRST_INTERVAL, _LONGEST_INTERVAL = 8, 1024

_COPIED_BYTES = 64 << 10
"""Above this, numpy copies, which lets other threads run meanwhile."""
_REFUSALS = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
"""What a file system that has no direct writes raises."""

_Pieces: TypeAlias = Sequence[bytes | memoryview]


@dataclass
class Cost:
    """Seconds a byte, of the recent parts."""

    cpu: float
    clock: float

    def averaged(self, other: Cost) -> Cost:
        """Return the mean of this and of another part, as any one may be interrupted."""
        return Cost((self.cpu + other.cpu) / 2, (self.clock + other.clock) / 2)


class WriteChoice:
    """The choice between the page cache and direct writes, from what both have cost.

    A direct write must save most of the processor's time, since a reader of the file has to wait for the disk.
    And the disk must be fast enough: its time may exceed that of the page cache by the time for which the thread was
    idle before. The way that is not chosen is measured again after some parts, and more and more rarely as long as
    nothing changes.
    """

    def __init__(self) -> None:
        self._cached: Cost | None = None
        self._direct: Cost | None = None
        self._chosen = False
        self._interval = self._parts_left = _FIRST_INTERVAL

    def next_is_direct(self, idle_seconds_per_byte: float) -> bool:
        """Return whether to write the next part directly."""
        if self._cached is None or self._direct is None:
            return self._cached is not None
        is_direct = (
            self._direct.cpu < _LEAST_SAVING * self._cached.cpu
            # A thread that writes to the page cache waits where the disk is slow; a direct write would wait as long.
            and self._direct.clock < self._cached.cpu + idle_seconds_per_byte
        )
        if is_direct != self._chosen:
            self._chosen = is_direct
            self._interval = self._parts_left = _FIRST_INTERVAL
        self._parts_left -= 1
        if self._parts_left > 0:
            return is_direct
        self._interval = self._parts_left = min(2 * self._interval, _LONGEST_INTERVAL)
        return not is_direct

    def add(self, is_direct: bool, cost: Cost) -> None:
        """Add what a part has cost."""
        known = self._direct if is_direct else self._cached
        # What is known of the way that is not chosen is old.
        recent = cost if known is None or is_direct != self._chosen else known.averaged(cost)
        if is_direct:
            self._direct = recent
        else:
            self._cached = recent


class IdleTime:
    """How long the thread that writes has had nothing to do."""

    def __init__(self) -> None:
        self._thread = 0
        self._clock = self._cpu = 0.0

    def begin(self) -> float:
        """Return the seconds that this thread has waited since `end`; 0 if another thread called that."""
        if self._thread != threading.get_ident():
            return 0.0
        return max(0.0, time.perf_counter() - self._clock - (time.thread_time() - self._cpu))

    def end(self) -> None:
        """Begin to count."""
        self._thread, self._clock, self._cpu = threading.get_ident(), time.perf_counter(), time.thread_time()


class LargeWrites:
    """Appends to the files of one folder. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffer: mmap.mmap | None = None
        self._choice = WriteChoice()
        self._idle = IdleTime()
        self._is_refused = not _O_DIRECT

    def append(self, number: int, pieces: _Pieces, read_soon: bool = False) -> None:
        """Write pieces one after another to the end of a file. Raises OSError.

        Args:
            number: The file's descriptor, whose position is the end of the file.
            pieces: What to write.
            read_soon: The page cache is to have it.
        """
        nbytes = sum(map(len, pieces))
        choice = os.environ.get(DIRECT_VARIABLE, "").lower()
        is_cached = nbytes < PART_BYTES or self._is_refused or choice in ("0", "false") or (read_soon and choice != "1")
        # There is one buffer: another thread that writes at the same moment does not wait for it.
        if is_cached or not self._lock.acquire(blocking=False):
            append_all(number, pieces)
            return
        try:
            self._append_parts(number, pieces, nbytes, is_chosen=choice == "1")
        finally:
            self._lock.release()

    def _append_parts(self, number: int, pieces: _Pieces, nbytes: int, is_chosen: bool) -> None:
        reserve(number, nbytes)
        position = os.lseek(number, 0, os.SEEK_CUR)
        idle = self._idle.begin() / nbytes
        for part, size in _split(pieces, _part_sizes(position, nbytes)):
            if size % _ALIGNED or self._is_refused:
                append_all(number, part)
            elif is_chosen:
                self._write_directly(number, part, size)
            else:
                self._measure(number, part, size, idle)
        self._idle.end()

    def _measure(self, number: int, part: _Pieces, size: int, idle_seconds_per_byte: float) -> None:
        is_direct = self._choice.next_is_direct(idle_seconds_per_byte)
        clock, cpu = time.perf_counter(), time.thread_time()
        if is_direct:
            self._write_directly(number, part, size)
        else:
            append_all(number, part)
        cost = Cost((time.thread_time() - cpu) / size, (time.perf_counter() - clock) / size)
        self._choice.add(is_direct, cost)

    def _write_directly(self, number: int, part: _Pieces, size: int) -> None:
        buffer = self._buffer = self._buffer or mmap.mmap(-1, PART_BYTES)
        _gather(part, buffer)
        written = 0
        with memoryview(buffer) as whole:
            try:
                with _direct(number):
                    written = os.write(number, whole[:size])
            except OSError as exc:
                if exc.errno not in _REFUSALS:
                    raise
                self._is_refused = True
            if written < size:
                append_all(number, [whole[written:size]])


def _part_sizes(position: int, nbytes: int) -> Iterator[int]:
    """Yield the sizes of the parts: up to a block's begin, then equal ones of whole blocks, and the rest of a block."""
    head = -position % _ALIGNED
    blocks = (nbytes - head) // _ALIGNED
    parts = -(-blocks * _ALIGNED // PART_BYTES)
    yield head
    for part in range(parts):
        yield ((part + 1) * blocks // parts - part * blocks // parts) * _ALIGNED
    yield nbytes - head - blocks * _ALIGNED


def _split(pieces: _Pieces, sizes: Iterator[int]) -> Iterator[tuple[_Pieces, int]]:
    """Yield the pieces of each part, and the size of the part. Empty parts are left out."""
    left = deque(memoryview(piece) for piece in pieces)
    for size in sizes:
        part: list[memoryview] = []
        missing = size
        while missing:
            piece = left.popleft()
            if len(piece) > missing:
                left.appendleft(piece[missing:])
                piece = piece[:missing]
            part.append(piece)
            missing -= len(piece)
        if size:
            yield part, size


def _gather(pieces: _Pieces, buffer: mmap.mmap) -> None:
    """Copy pieces one after another into a buffer."""
    begin = 0
    with memoryview(buffer) as target:
        for piece in pieces:
            end = begin + len(piece)
            if len(piece) < _COPIED_BYTES:
                target[begin:end] = piece
            else:
                np.copyto(np.frombuffer(buffer, np.uint8, len(piece), begin), np.frombuffer(piece, np.uint8))
            begin = end


@contextmanager
def _direct(number: int) -> Iterator[None]:
    """Let writes to a file bypass the page cache, in the block."""
    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    fcntl.fcntl(number, fcntl.F_SETFL, flags | _O_DIRECT)
    try:
        yield
    finally:
        fcntl.fcntl(number, fcntl.F_SETFL, flags)
