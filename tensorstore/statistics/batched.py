"""The statistics of many small arrays at once.

A model has a hundred of them, and calling numpy for each would take longer than the computation itself.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .blocks import Array
from .definitions import DEFINITIONS, DEGREES, FORMULAS, STATISTICS, ArrayOperations, quantities_of
from .kernels import numkong
from .limits import limits_of
from .single import CANCELLATION, LEAST_EXPONENT, SAFE_LEAST, SAFE_SQUARES, statistics
from .sums import Floats

SMALL_ELEMENTS = 4096
"""The most elements of an array that is joined. For larger ones, the calls of numpy take little of the time."""
FEW_ELEMENTS = 512
"""The most elements of an array that is joined if numkong is installed."""
_MOST_WAITING = 256  # arrays, so that their memory is bounded
_Then: TypeAlias = Callable[[tuple[str, ...], Iterable[float]], None]
_TOGETHER = 16384
"""The approximate number of elements that are joined, so that they fit into the processor's cache."""


def can_join(array: Array) -> bool:
    """Return whether `statistics_of_many` is faster for an array."""
    dtype = array.dtype
    if dtype.kind != "f" or dtype.itemsize > 8:
        return False
    return 1 < array.size <= (FEW_ELEMENTS if dtype.itemsize < 8 and numkong() else SMALL_ELEMENTS)


def statistics_of_many(arrays: Sequence[Array], names: tuple[str, ...]) -> list[dict[str, float]]:
    """Return `statistics` of each array, up to rounding of the last digit. All arrays must be joinable (`can_join`)."""
    return [dict(zip(names, row, strict=True)) for row in rows_of_many(arrays, names)]


def rows_of_many(arrays: Sequence[Array], names: tuple[str, ...]) -> list[tuple[float, ...]]:
    """Return the numbers of `statistics_of_many`, one row an array, in the order of `names`, which are canonical."""
    ends = list(accumulate(array.size for array in arrays))
    found: list[tuple[float, ...]] = []
    while len(found) < len(arrays):
        begin = len(found)
        before = ends[begin - 1] if begin else 0
        found += _of_group(arrays[begin : max(begin + 1, bisect_right(ends, before + _TOGETHER))], names)
    return found


class Measuring:
    """The computation of the statistics of arrays, in which small ones wait until there are many of them."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, ...], list[tuple[Array, _Then]]] = {}

    def add(self, array: Array, names: tuple[str, ...], then: _Then, may_wait: bool) -> None:
        """Call `then` with the names of the statistics and the numbers, now or in a later call of any method."""
        if may_wait and can_join(array):
            self._waiting.setdefault(names, []).append((array, then))
            if len(self._waiting[names]) >= _MOST_WAITING:
                self.finish()
        else:
            found = statistics(array, names)
            then(tuple(found), found.values())

    def finish(self) -> None:
        """Compute the statistics of all arrays that wait."""
        for names, found in self._waiting.items():
            for (_, then), row in zip(found, rows_of_many([array for array, _ in found], names), strict=True):
                then(names, row)
        self._waiting.clear()


def _of_group(arrays: Sequence[Array], names: tuple[str, ...]) -> list[tuple[float, ...]]:
    joined = _joined(arrays) if _STATISTICS.issuperset(names) else None
    if joined is None:
        return [tuple(statistics(array, names).values()) for array in arrays]
    with np.errstate(all="ignore"):
        columns = [FORMULAS[name](joined).tolist() for name in names]
    found = list(zip(*columns, strict=True))
    with_care = {number for number in joined.beyond_float64 if not _SCALED.isdisjoint(names)}
    for name, column in zip(names, columns, strict=True):
        if name in _PRODUCTS:
            with_care.update(number for number, each in enumerate(column) if math.isnan(each))
    for number in with_care:
        found[number] = tuple(statistics(arrays[number], names).values())
    return found


def _joined(arrays: Sequence[Array]) -> _Joined | None:
    """Return the joined arrays; None if one has an infinity or NaN, or a number whose square overflows."""
    with np.errstate(all="ignore"):
        joined = _Joined(arrays)
        return joined if np.isfinite(joined.squares.sum()) else None


class _Joined(ArrayOperations):
    """Concatenated arrays in float64, and the quantities of each."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self._dtypes = [array.dtype for array in arrays]
        sizes = [array.size for array in arrays]
        self.count = np.array(sizes)
        self._starts = np.array([0, *accumulate(sizes[:-1])])
        self.values: Floats = np.concatenate([array.reshape(-1) for array in arrays], dtype=np.float64)
        self.squares = self.sums(np.square(self.values))
        self.nans = self.infs = np.zeros(len(arrays))  # all numbers are finite: see `_joined`

    @property
    def beyond_float64(self) -> list[int]:
        """The arrays with numbers whose powers leave the range of float64."""
        low, high = SAFE_SQUARES
        numbers = np.flatnonzero((self.squares <= low) | (self.squares >= high)).tolist()
        return [number for number in numbers if self._dtypes[number].itemsize == 8 and self.magnitude[number]]

    def sums(self, values: Floats) -> Floats:
        return np.add.reduceat(values, self._starts)

    @cached_property
    def total(self) -> Floats:
        return self.sums(self.values)

    @cached_property
    def magnitude(self) -> Floats:
        return self.sums(np.absolute(self.values))

    @cached_property
    def low(self) -> Floats:
        return np.minimum.reduceat(self.values, self._starts)

    @cached_property
    def high(self) -> Floats:
        return np.maximum.reduceat(self.values, self._starts)

    @property
    def norm(self) -> Floats:
        return np.sqrt(self.squares)

    @cached_property
    def spread(self) -> Floats:
        mean = self.total / self.count
        spread = self.squares - self.total * mean
        return self.sums(np.square(self._centered)) if (spread <= CANCELLATION * self.squares).any() else spread

    @cached_property
    def _centered(self) -> Floats:
        centered: Floats = self.values - np.repeat(self.total / self.count, self.count)
        # The mean is subtracted again, to correct its rounding error.
        centered -= np.repeat(self.sums(centered) / self.count, self.count)
        return centered

    @property
    def third(self) -> Floats:
        return self.sums(self._centered**3)

    @property
    def fourth(self) -> Floats:
        return self.sums(np.square(np.square(self._centered)))

    @cached_property
    def zeros(self) -> Floats:
        return self._counts(self.values == 0)

    @property
    def subnormals(self) -> Floats:
        normal = np.repeat([limits_of(dtype).normal for dtype in self._dtypes], self.count)
        return self._counts(np.absolute(self.values) < normal) - self.zeros

    @property
    def saturated(self) -> Floats:
        highest = np.repeat([limits_of(dtype).highest for dtype in self._dtypes], self.count)
        return self._counts(np.absolute(self.values) == highest)  # for floats, the least number is minus the greatest

    def _counts(self, chosen: npt.NDArray[np.bool_]) -> Floats:
        return self.sums(chosen.astype(np.float64))

    @cached_property
    def product(self) -> Floats:
        """The product; NaN if it needs a more careful computation."""
        # The geometric mean of |x| is at most the arithmetic one: the product of most weights is 0.
        lasts = self.count * np.log2(self.magnitude / self.count) >= LEAST_EXPONENT
        if not lasts.any():
            return np.zeros(len(self.count))
        direct = np.multiply.reduceat(self.values, self._starts)
        size = np.absolute(direct)
        return np.where(lasts, np.where((size > SAFE_LEAST) & (size < math.inf), direct, math.nan), 0.0)


_QUANTITIES = frozenset(
    {
        *("low", "high", "total", "magnitude", "norm", "spread", "product"),
        *("third", "fourth", "nans", "infs", "zeros", "subnormals", "saturated"),
    }
)
"""The sums that `_Joined` has."""
_STATISTICS = frozenset(name for name in STATISTICS if quantities_of((name,)) <= _QUANTITIES)
"""The statistics that can be computed of joined arrays."""
_SCALED = frozenset(DEGREES)
_PRODUCTS = frozenset(name for name in STATISTICS if "product" in DEFINITIONS[name].needs)
