"""Copies of tensors in memory that is used again: fresh memory costs several times as much as the copy itself, because
the operating system has to find and clear each page at the first touch."""

from __future__ import annotations

import threading

import numpy as np

from .dtypes import Array

LIMIT_BYTES = 96 << 20
"""What waits to be used again. The values of one row group come back at once, while the next ones are being copied."""
_SMALLEST_BYTES = 16 << 10
"""The allocator itself keeps smaller ones at hand."""


class Copies:
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
        if nbytes < _SMALLEST_BYTES:
            return np.array(array, order="C")
        with self._lock:
            found = self._free.get(nbytes)
            memory = found.pop() if found else None
            if memory is not None:
                self._free_bytes -= nbytes
        if memory is None:
            memory = np.empty(nbytes, np.uint8)
        copy: Array = np.ndarray(array.shape, array.dtype, memory)
        np.copyto(copy, array)
        return copy

    def give_back(self, copy: Array) -> None:
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
