"""Copies of tensors in memory that is used again: fresh memory costs several times as much as the copy itself, because
the operating system has to find and clear each page at the first touch. What is fresh comes in pages of 2 MB, where the
system has them: that is four times as fast as in those of 4 kB."""

from __future__ import annotations

import mmap
import struct
import threading
from collections import deque
from contextlib import suppress

import numpy as np

from ..dtypes import Array

LIMIT_BYTES = 96 << 20
"""What waits to be used again. The values of one row group come back at once, while the next ones are being copied."""
BATCHED_BYTES = 1 << 20
"""Values of fewer bytes than this lie together in buffers."""
_ARENA_BYTES = 4 << 20
_SPARE_ARENAS = 24
_PREFIX = struct.Struct("<i")
LENGTH_BYTES = _PREFIX.size
SMALL_BYTES = 16 << 10
"""Below this, what is done before a copy takes longer than another copy."""


class BufferPool:
    """Makes copies, and takes them back once nobody reads them. Training asks for the same sizes at every step, so what
    comes back fits. May be called from any thread."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._free: dict[int, list[Array]] = {}
        self._free_bytes = 0

    def copy(self, array: Array) -> Array:
        """The same values in C order, in memory of their own."""
        nbytes = array.nbytes
        if nbytes < BATCHED_BYTES:
            return np.array(array, order="C")
        with self._lock:
            found = self._free.get(nbytes)
            memory = found.pop() if found else None
            if memory is not None:
                self._free_bytes -= nbytes
        if memory is None:
            memory = np.frombuffer(fresh_memory(nbytes), np.uint8)
        copy: Array = np.ndarray(array.shape, array.dtype, memory)
        np.copyto(copy, array)
        return copy

    def release(self, copy: Array) -> None:
        """Use the memory of `copy` again. Nobody may read it any more."""
        memory = copy.base
        if not isinstance(memory, np.ndarray):
            return  # a small one
        with self._lock:
            if self._free_bytes + memory.nbytes > self._limit:
                # Of sizes, perhaps, that do not come any more.
                self._free.clear()
                self._free_bytes = 0
            if memory.nbytes <= self._limit:
                self._free.setdefault(memory.nbytes, []).append(memory)
                self._free_bytes += memory.nbytes


class BatchBuffer:
    """Memory in which copies lie one after another as in a page of Parquet, each after its length. It serves again when
    nobody holds the arena any more."""

    def __init__(self, buffers: BatchBuffers, memory: mmap.mmap) -> None:
        self._batch_buffers, self.memory = buffers, memory
        self.free_bytes = len(memory)
        """Bytes that are left, for values and their lengths."""

    def __del__(self) -> None:
        self._batch_buffers.release(self.memory)

    def copy(self, array: Array) -> None:
        """Copy an array behind the others; there must be room."""
        nbytes, memory = array.nbytes, self.memory
        memory.write(_PREFIX.pack(nbytes))
        if nbytes < SMALL_BYTES:
            memory.write(array.tobytes())
        else:
            begin = memory.tell()
            np.copyto(np.ndarray(array.shape, array.dtype, memory, begin), array)
            memory.seek(begin + nbytes)
        self.free_bytes -= nbytes + LENGTH_BYTES


class BatchBuffers:
    """BatchBuffers of one thread at a time; they come back from any."""

    def __init__(self, nbytes: int = _ARENA_BYTES) -> None:
        self._nbytes = nbytes
        self._spare: deque[mmap.mmap] = deque(maxlen=_SPARE_ARENAS)
        self._current: BatchBuffer | None = None

    def acquire(self, nbytes: int) -> BatchBuffer:
        """An arena that has room for a value of so many bytes."""
        if self._current is None or self._current.free_bytes < nbytes + LENGTH_BYTES:
            self._current = None  # which may give its memory back
            self._current = BatchBuffer(self, self._memory())
        return self._current

    def release(self, memory: mmap.mmap) -> None:
        self._spare.append(memory)

    def _memory(self) -> mmap.mmap:
        try:
            memory = self._spare.pop()
        except IndexError:
            return fresh_memory(self._nbytes)
        memory.seek(0)
        return memory


def fresh_memory(nbytes: int) -> mmap.mmap:
    """Memory that nobody has touched yet."""
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # of a system that was built without
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
