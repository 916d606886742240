"""The statistics of many small arrays at once.

A model has a hundred of them, and calling numpy for each would take longer than the computation itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .blocks import Array
from .definitions import DEFINITIONS, FORMULAS, STATISTICS, quantities_of
from .limits import limits_of
from .single import CANCELLATION, LEAST_EXPONENT, SAFE_LEAST, statistics
from .sums import Floats

SMALL_ELEMENTS = 4096
"""For larger arrays, numpy's calls are not what takes the time."""
_TOGETHER = 16384
"""Elements that are joined, about: they stay in the processor's cache."""


def can_join(array: Array) -> bool:
    """Return whether `statistics_of_many` is faster for an array."""
    return 1 < array.size <= SMALL_ELEMENTS and array.dtype.kind == "f" and array.dtype.itemsize <= 8


def statistics_of_many(arrays: Sequence[Array], names: tuple[str, ...]) -> list[dict[str, float]]:
    """Return what `statistics` returns for each of the arrays, all of which `can_join`; the last digit may differ."""
    sizes = np.array([array.size for array in arrays])
    group = (np.cumsum(sizes) - sizes) // _TOGETHER
    bounds = np.flatnonzero(np.diff(group, prepend=-1, append=-1)).tolist()
    return [each for begin, end in pairwise(bounds) for each in _of_group(arrays[begin:end], names)]


def _of_group(arrays: Sequence[Array], names: tuple[str, ...]) -> list[dict[str, float]]:
    columns = _columns(arrays, names) if _STATISTICS.issuperset(names) else None
    if columns is None:
        return [statistics(array, names) for array in arrays]
    found = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return [
        statistics(array, names) if any(math.isnan(each.get(name, 0.0)) for name in _PRODUCTS) else each
        for array, each in zip(arrays, found, strict=True)
    ]


def _columns(arrays: Sequence[Array], names: tuple[str, ...]) -> list[list[float]] | None:
    """Return the values of each name for all arrays; None if any array holds an infinity or NaN."""
    with np.errstate(all="ignore"):
        joined = _Joined(arrays)
        if not np.isfinite(joined.squares.sum()):
            return None
        return [FORMULAS[name](joined).tolist() for name in names]


class _Joined:
    """Arrays one after another, in float64, and the quantities of each."""

    sqrt = staticmethod(np.sqrt)
    maximum = staticmethod(np.maximum)

    def __init__(self, arrays: Sequence[Array]) -> None:
        self._limits = [limits_of(array.dtype) for array in arrays]
        self.count = np.array([array.size for array in arrays])
        self._starts = np.cumsum(self.count) - self.count
        self.values: Floats = np.concatenate([array.reshape(-1) for array in arrays], dtype=np.float64)
        self.total = self.sums(self.values)
        self.magnitude = self.sums(np.absolute(self.values))
        self.squares = self.sums(np.square(self.values))

    def sums(self, values: Floats) -> Floats:
        return np.add.reduceat(values, self._starts)

    @cached_property
    def low(self) -> Floats:
        return np.minimum.reduceat(self.values, self._starts)

    @cached_property
    def high(self) -> Floats:
        return np.maximum.reduceat(self.values, self._starts)

    @staticmethod
    def ratio(numerators: Floats, denominators: Floats, reliable: npt.NDArray[np.bool_]) -> Floats:
        """Return the ratios, NaN where they are not reliable."""
        ratios: Floats = np.where(reliable, numerators / denominators, math.nan)
        return ratios

    @property
    def norm(self) -> Floats:
        norm: Floats = np.sqrt(self.squares)
        return norm

    @cached_property
    def spread(self) -> Floats:
        mean = self.total / self.count
        spread = self.squares - self.total * mean
        if (spread <= CANCELLATION * self.squares).any():
            centred = self.values - np.repeat(mean, self.count)
            # The last term takes out what the rounding of the mean has put in.
            spread = self.sums(np.square(centred)) - self.sums(centred) ** 2 / self.count
        positive: Floats = np.maximum(spread, 0.0)
        return positive

    @cached_property
    def _centred(self) -> Floats:
        centred: Floats = self.values - np.repeat(self.total / self.count, self.count)
        # Once more, for what the rounding of the mean has left.
        centred -= np.repeat(self.sums(centred) / self.count, self.count)
        return centred

    @property
    def third(self) -> Floats:
        return self.sums(self._centred**3)

    @property
    def fourth(self) -> Floats:
        return self.sums(np.square(np.square(self._centred)))

    @cached_property
    def zeros(self) -> Floats:
        return self._counts(self.values == 0)

    @property
    def subnormals(self) -> Floats:
        normal = np.repeat([each.normal for each in self._limits], self.count)
        return self._counts(np.absolute(self.values) < normal) - self.zeros

    @property
    def saturated(self) -> Floats:
        highest = np.repeat([each.highest for each in self._limits], self.count)
        return self._counts(np.absolute(self.values) == highest)  # of a float, the least is minus the greatest

    def _counts(self, chosen: npt.NDArray[np.bool_]) -> Floats:
        return self.sums(chosen.astype(np.float64))

    @cached_property
    def product(self) -> Floats:
        """NaN where it takes more care than this."""
        products = np.zeros(len(self.count))
        # The geometric mean of |x| is at most the arithmetic one: the product of most weights is 0.
        lasts = self.count * np.log2(self.magnitude / self.count) >= LEAST_EXPONENT
        for number in np.flatnonzero(lasts).tolist():
            begin = self._starts[number]
            direct = float(np.multiply.reduce(self.values[begin : begin + self.count[number]]))
            products[number] = direct if SAFE_LEAST < abs(direct) < math.inf else math.nan
        return products


_QUANTITIES = frozenset(
    {
        *("low", "high", "total", "magnitude", "norm", "spread", "product"),
        *("third", "fourth", "zeros", "subnormals", "saturated"),
    }
)
"""Those that `_Joined` has."""
_STATISTICS = frozenset(name for name in STATISTICS if quantities_of((name,)) <= _QUANTITIES)
"""Other statistics are computed one array at a time."""
_PRODUCTS = tuple(name for name in STATISTICS if "product" in DEFINITIONS[name].needs)
