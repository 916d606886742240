"""Statistics of many small tensors in one go: a model has a hundred, and numpy's calls for each of them would cost more
than their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from .single import CANCELLATION, LEAST_EXPONENT, SAFE_LEAST, Array, statistics
from .sums import Floats

SMALL_ELEMENTS = 4096
"""Of larger ones, numpy's calls are not what takes the time."""
_TOGETHER = 16384
"""Elements that are joined, about: they stay in the processor's cache."""


def can_join(array: Array) -> bool:
    """Whether `statistics_of_many` gains anything for an array."""
    return 1 < array.size <= SMALL_ELEMENTS and array.dtype.kind == "f" and array.dtype.itemsize <= 8


def statistics_of_many(arrays: Sequence[Array], names: tuple[str, ...]) -> list[dict[str, float]]:
    """What `statistics` gives for each of the arrays, all of which `can_join`; to the last digits but one."""
    sizes = np.array([array.size for array in arrays])
    group = (np.cumsum(sizes) - sizes) // _TOGETHER
    bounds = np.flatnonzero(np.diff(group, prepend=-1, append=-1)).tolist()
    return [each for begin, end in pairwise(bounds) for each in _of_group(arrays[begin:end], names)]


def _of_group(arrays: Sequence[Array], names: tuple[str, ...]) -> list[dict[str, float]]:
    columns = None if set(names) - _FINISHERS.keys() else _columns(arrays, names)
    if columns is None:
        return [statistics(array, names) for array in arrays]
    found = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return [
        statistics(array, names) if math.isnan(each.get("prod", 0.0)) else each
        for array, each in zip(arrays, found, strict=True)
    ]


def _columns(arrays: Sequence[Array], names: tuple[str, ...]) -> list[list[float]] | None:
    """The values of each name for all arrays; None if there is an infinity or a NaN anywhere."""
    with np.errstate(all="ignore"):
        joined = _Joined(arrays)
        if not np.isfinite(joined.squares.sum()):
            return None
        return [_FINISHERS[name](joined).tolist() for name in names]


class _Joined:
    """Arrays one after another, in float64, and the sums of each."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.counts = np.array([array.size for array in arrays])
        self._starts = np.cumsum(self.counts) - self.counts
        self.values: Floats = np.concatenate([array.reshape(-1) for array in arrays], dtype=np.float64)
        self.total = self.sums(self.values)
        self.magnitude = self.sums(np.absolute(self.values))
        self.squares = self.sums(np.square(self.values))

    def sums(self, values: Floats) -> Floats:
        return np.add.reduceat(values, self._starts)

    def low(self) -> Floats:
        return np.minimum.reduceat(self.values, self._starts)

    def high(self) -> Floats:
        return np.maximum.reduceat(self.values, self._starts)

    @cached_property
    def variance(self) -> Floats:
        mean = self.total / self.counts
        spread = self.squares - self.total * mean
        if (spread <= CANCELLATION * self.squares).any():
            centred = self.values - np.repeat(mean, self.counts)
            # The last term takes out what the rounding of the mean has put in.
            spread = self.sums(np.square(centred)) - self.sums(centred) ** 2 / self.counts
        variance: Floats = np.maximum(spread, 0.0) / self.counts
        return variance

    def product(self) -> Floats:
        """NaN where it takes more care than this."""
        products = np.zeros(len(self.counts))
        # The geometric mean of |x| is at most the arithmetic one: the product of most weights is 0.
        lasts = self.counts * np.log2(self.magnitude / self.counts) >= LEAST_EXPONENT
        for number in np.flatnonzero(lasts).tolist():
            begin = self._starts[number]
            direct = float(np.multiply.reduce(self.values[begin : begin + self.counts[number]]))
            products[number] = direct if SAFE_LEAST < abs(direct) < math.inf else math.nan
        return products


_Finisher: TypeAlias = Callable[[_Joined], Floats]
_FINISHERS: dict[str, _Finisher] = {
    "min": _Joined.low,
    "max": _Joined.high,
    "mean": lambda joined: joined.total / joined.counts,
    "std": lambda joined: np.sqrt(joined.variance),
    "variance": lambda joined: joined.variance,
    "sum": lambda joined: joined.total,
    "prod": _Joined.product,
    "l1": lambda joined: joined.magnitude,
    "l2": lambda joined: np.sqrt(joined.squares),
    "abs_mean": lambda joined: joined.magnitude / joined.counts,
    "abs_max": lambda joined: np.maximum(joined.high(), -joined.low()),
}
