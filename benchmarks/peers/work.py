"""The data that every peer saves: the same tensors and scalars, created again where they are checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

# Tensors are windows into one row of random numbers, 64 bytes apart: all differ, and none costs time to make.
_WINDOWS = 4093
_STRIDE = 16


@dataclass(frozen=True)
class Tensors:
    """`steps` steps of `per_step` tensors of `nbytes` bytes each, float32."""

    nbytes: int
    per_step: int
    steps: int

    @classmethod
    def of(cls, nbytes: int, total: int) -> Tensors:
        """About `total` bytes in tensors of `nbytes`, in a model of a plausible number of layers."""
        per_step = {4_000: 200, 100_000: 40}.get(nbytes, 4)
        return cls(nbytes, per_step, max(8, total // nbytes // per_step))

    @property
    def floats(self) -> int:
        return self.nbytes // 4

    @property
    def count(self) -> int:
        return self.per_step * self.steps

    @cached_property
    def names(self) -> list[str]:
        return [f"layer{number:03}.weight" for number in range(self.per_step)]

    @cached_property
    def _numbers(self) -> np.ndarray:
        return np.random.default_rng(0).standard_normal(self.floats + _WINDOWS * _STRIDE, dtype=np.float32)

    def array(self, layer: int, step: int) -> np.ndarray:
        """The value of a layer at a step: a view, not to be written to."""
        begin = (step * self.per_step + layer) % _WINDOWS * _STRIDE
        return self._numbers[begin : begin + self.floats]

    def at(self, step: int) -> dict[str, np.ndarray]:
        return {name: self.array(layer, step) for layer, name in enumerate(self.names)}

    def series(self, name: str) -> np.ndarray:
        """All values of a tensor, of the shape (steps, floats)."""
        layer = self.names.index(name)
        return np.stack([self.array(layer, step) for step in range(self.steps)])


@dataclass(frozen=True)
class Scalars:
    """`steps` steps of `per_step` numbers each."""

    per_step: int
    steps: int

    @property
    def count(self) -> int:
        return self.per_step * self.steps

    @cached_property
    def names(self) -> list[str]:
        return [f"metric{number:03}" for number in range(self.per_step)]

    def at(self, step: int) -> dict[str, float]:
        return {name: self.value(number, step) for number, name in enumerate(self.names)}

    def value(self, number: int, step: int) -> float:
        """Noisy and falling, as a loss is; exact in float32, which is what some peers keep."""
        return float(np.float32(1.0 / (1 + step) + (step * 7919 + number * 104_729) % 65_536 / 65_536))

    def series(self, name: str) -> list[float]:
        number = self.names.index(name)
        return [self.value(number, step) for step in range(self.steps)]
