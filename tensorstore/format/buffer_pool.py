"""Pools of buffers for copies of tensors.

Fresh memory costs several times as much as the copy itself, because the operating system has to find and clear each
page when it is first written to. So released buffers are used again. Fresh ones consist of pages of 2 MB if the system
has them, which is four times as fast as pages of 4 kB.
"""

from __future__ import annotations

import mmap
import threading
from contextlib import suppress

import numpy as np

from ..dtypes import Array
from ..forking import register

LIMIT_BYTES = 96 << 20
"""The most bytes of released buffers. One row group is released at once, while the next one is copied."""
BATCHED_BYTES = 1 << 20
"""Values of fewer bytes than this lie together in batch buffers."""
HUGE_PAGE = 2 << 20
SMALL_BYTES = 16 << 10
"""Below this number of bytes, preparing a copy takes longer than a second copy."""


class BufferPool:
    """Buffers by size. Training needs the same sizes at every step, so released buffers fit.

    The methods may be called from any thread.
    """

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        register(self)
        self._lock = threading.RLock()  # an array may be deleted, and its memory be kept, while this thread holds it
        self._free: dict[int, list[Array]] = {}
        self._free_bytes = 0

    def acquire(self, array: Array) -> Array:
        """Return a copy of an array, in C order, in a buffer of its own."""
        nbytes = array.nbytes
        if nbytes < BATCHED_BYTES:
            return np.array(array, order="C")
        copy: Array = np.ndarray(array.shape, array.dtype, self._memory(nbytes))
        np.copyto(copy, array)
        return copy

    def acquire_to_read(self, nbytes: int) -> Array:
        """Return an array of uint8 whose memory is used again once no array refers to it. Raises MemoryError."""
        buffer: Array = np.asarray(_ReadBuffer(self, self._memory(-(-nbytes // HUGE_PAGE) * HUGE_PAGE)))
        return buffer[:nbytes]

    def _memory(self, nbytes: int) -> Array:
        with self._lock:
            if found := self._free.get(nbytes):
                self._free_bytes -= nbytes
                return found.pop()
        return np.frombuffer(fresh_memory(nbytes), np.uint8)

    def release(self, copy: Array) -> None:
        """Use the buffer of `copy` again. The copy must not be read afterwards."""
        if isinstance(copy.base, np.ndarray):  # a small copy has no buffer of the pool
            self.keep(copy.base)

    def keep(self, memory: Array) -> None:
        """Use memory of the pool again."""
        with self._lock:
            if self._free_bytes + memory.nbytes > self._limit:
                # These may be of sizes that are no longer needed.
                self._free.clear()
                self._free_bytes = 0
            if memory.nbytes <= self._limit:
                self._free.setdefault(memory.nbytes, []).append(memory)
                self._free_bytes += memory.nbytes

    def after_fork(self) -> None:
        self._lock = threading.RLock()


class _ReadBuffer:
    """Memory that a pool uses again once no array refers to it."""

    def __init__(self, pool: BufferPool, memory: Array) -> None:
        self._pool, self._memory, self.__array_interface__ = pool, memory, memory.__array_interface__

    def __del__(self) -> None:
        self._pool.keep(self._memory)


BUFFERS = BufferPool()
"""The pool of this process. All its runs share it, so that a later run uses the memory of an earlier one."""


def fresh_memory(nbytes: int) -> mmap.mmap:
    """Return memory that was never written to. Raises MemoryError."""
    try:
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as exc:
        raise MemoryError(f"cannot allocate {nbytes} bytes") from exc
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system that was built without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
