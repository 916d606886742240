"""A pool of buffers for copies of CPU tensors, which are used again at later steps.

New memory takes several times as long as the copy itself, because the operating system finds and clears each page at
the first write, and torch's allocator returns freed memory to the operating system.
"""

from __future__ import annotations

import mmap
import threading
from typing import TypeAlias

import numpy as np
import torch

from tensortrial.dtypes import Array
from tensortrial.format.buffer_pool import LIMIT_BYTES, fresh_memory

from .arrays import as_numpy, unsupported

# The operating system provides memory in pages of 2 MB, so small copies share a page.
_SLAB_BYTES = 4 << 20
_LINE_BYTES = 64

_Key: TypeAlias = tuple[torch.Size, torch.dtype]


class Buffer:
    """Memory for the copy of a tensor, which is read as an array until it is released."""

    __slots__ = ("_pool", "array", "key", "nbytes", "tensor")

    def __init__(self, pool: BufferPool, key: _Key, memory: Array) -> None:
        self._pool, self.key, self.nbytes = pool, key, memory.nbytes
        shape, dtype = key
        # A tensor that is made in inference mode cannot be written to outside of it.
        with torch.inference_mode(False):
            self.tensor = torch.from_numpy(memory).view(dtype).view(shape)
        self.array = as_numpy(self.tensor)

    def release(self, array: Array) -> None:
        """Return the buffer to its pool. The array must not be read afterwards."""
        self._pool.release(self)


class BufferPool:
    """Buffers by shape and dtype. Training needs the same shapes at every step, so released buffers fit.

    The methods may be called from any thread. A buffer that is never released is freed with its memory.

    Args:
        limit: The most bytes of released buffers.
    """

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._free: dict[_Key, list[Buffer]] = {}
        self._free_bytes = 0
        self._slab: mmap.mmap | None = None
        self._taken = 0
        """The bytes of the slab that are in use."""

    def acquire(self, tensor: torch.Tensor) -> Buffer:
        """Return a buffer with a copy of a tensor on the CPU that is dense and not empty.

        Raises:
            UnsupportedValue: The tensor cannot be copied.
        """
        try:
            key, nbytes = (tensor.shape, tensor.dtype), tensor.nbytes
            with self._lock:
                free = self._free.get(key)
                if free:
                    self._free_bytes -= nbytes
                    buffer = free.pop()
                else:
                    buffer = Buffer(self, key, self._fresh(nbytes))
            buffer.tensor.copy_(tensor)
        except Exception as exc:  # a class of its own may raise anything
            raise unsupported(tensor, exc) from exc
        return buffer

    def release(self, buffer: Buffer) -> None:
        """Take a buffer back. It must not be read afterwards."""
        nbytes = buffer.nbytes
        with self._lock:
            if self._free_bytes + nbytes > self._limit and not self._free.get(buffer.key):
                # The pool is full of other shapes, which may not be needed any more.
                self._free.clear()
                self._free_bytes = 0
            if self._free_bytes + nbytes <= self._limit:
                self._free.setdefault(buffer.key, []).append(buffer)
                self._free_bytes += nbytes

    def close(self) -> None:
        """Free the memory, also that of buffers that are released later."""
        with self._lock:
            self._limit, self._free_bytes, self._slab = 0, 0, None
            self._free.clear()

    def _fresh(self, nbytes: int) -> Array:
        if nbytes > _SLAB_BYTES // 2:
            return np.frombuffer(fresh_memory(nbytes), np.uint8)
        if self._slab is None or self._taken + nbytes > _SLAB_BYTES:
            self._slab, self._taken = fresh_memory(_SLAB_BYTES), 0
        memory = np.frombuffer(self._slab, np.uint8, nbytes, self._taken)
        self._taken += -(-nbytes // _LINE_BYTES) * _LINE_BYTES
        return memory
