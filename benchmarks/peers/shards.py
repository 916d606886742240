"""What both libraries for Zarr's format share: values wait for a shard of about a megabyte."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from .work import Tensors

_SHARD_BYTES = 1_000_000


def steps_a_shard(work: Tensors) -> int:
    return max(1, min(work.steps, _SHARD_BYTES // work.nbytes))


class Shards:
    """Collects each tensor's values of some steps, and hands them to `write(name, first step, values)` together."""

    def __init__(self, work: Tensors, write: Callable[[str, int, np.ndarray], None]) -> None:
        self._write, self._size = write, steps_a_shard(work)
        self._shape = (self._size, work.floats)
        self._waiting: dict[str, np.ndarray] = {}
        self._first = self._filled = 0

    def add(self, step: int, tensors: Mapping[str, np.ndarray]) -> None:
        if not self._filled:
            self._first = step
            self._waiting = {name: np.empty(self._shape, np.float32) for name in tensors}
        for name, array in tensors.items():
            self._waiting[name][self._filled] = array
        self._filled += 1
        if self._filled == self._size:
            self.flush()

    def flush(self) -> None:
        for name, values in self._waiting.items():
            self._write(name, self._first, values[: self._filled])
        self._waiting, self._filled = {}, 0
