"""Copies of CPU tensors in memory that serves again, step after step.

Fresh memory costs the training several times what the copy does, because the operating system has to find and clear
each page at the first touch; and what copies give back to torch's allocator, it gives back to the operating system.
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

# Fresh memory comes in pages of 2 MB, so small copies share some of them.
_SLAB_BYTES = 4 << 20
_LINE_BYTES = 64

_Key: TypeAlias = tuple[torch.Size, torch.dtype]


class Copy:
    """A copy of a tensor, as an array, until it is given back."""

    __slots__ = ("_copies", "_tensor", "array", "key")

    def __init__(self, copies: TorchCopies, key: _Key, memory: Array) -> None:
        self._copies, self.key = copies, key
        shape, dtype = key
        # What is made in inference mode could not be written to outside.
        with torch.inference_mode(False):
            self._tensor = torch.from_numpy(memory).view(dtype).view(shape)
        self.array = as_numpy(self._tensor)

    def fill(self, tensor: torch.Tensor) -> None:
        self._tensor.copy_(tensor)

    def release(self, copy: Array) -> None:
        """Use the memory again. Nobody may read it any more."""
        self._copies.take_back(self)


class TorchCopies:
    """Makes copies; training asks for the same shapes at every step, so what comes back fits. May be called from any
    thread. A copy that nobody gives back is forgotten with its memory."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._free: dict[_Key, list[Copy]] = {}
        self._free_bytes = 0
        self._slab: mmap.mmap | None = None
        self._taken = 0
        """Bytes of the slab."""

    def copy(self, tensor: torch.Tensor) -> Copy:
        """A copy of a tensor on the CPU that is dense and not empty. Raises UnsupportedValue."""
        try:
            copy = self._take((tensor.shape, tensor.dtype), tensor.nbytes)
            copy.fill(tensor)
        except Exception as exc:  # a class of its own may raise anything
            raise unsupported(tensor, exc) from exc
        return copy

    def take_back(self, copy: Copy) -> None:
        nbytes = copy.array.nbytes
        with self._lock:
            if self._free_bytes + nbytes > self._limit and not self._free.get(copy.key):
                # Full of other shapes, which perhaps do not come any more.
                self._free.clear()
                self._free_bytes = 0
            if self._free_bytes + nbytes <= self._limit:
                self._free.setdefault(copy.key, []).append(copy)
                self._free_bytes += nbytes

    def release(self) -> None:
        """Forget the memory, and keep nothing that comes back from here on."""
        with self._lock:
            self._limit, self._free_bytes, self._slab = 0, 0, None
            self._free.clear()

    def _take(self, key: _Key, nbytes: int) -> Copy:
        with self._lock:
            free = self._free.get(key)
            if not free:
                return Copy(self, key, self._fresh(nbytes))
            self._free_bytes -= nbytes
            return free.pop()

    def _fresh(self, nbytes: int) -> Array:
        if nbytes > _SLAB_BYTES // 2:
            return np.frombuffer(fresh_memory(nbytes), np.uint8)
        if self._slab is None or self._taken + nbytes > _SLAB_BYTES:
            self._slab, self._taken = fresh_memory(_SLAB_BYTES), 0
        memory = np.frombuffer(self._slab, np.uint8, nbytes, self._taken)
        self._taken += -(-nbytes // _LINE_BYTES) * _LINE_BYTES
        return memory
