"""Columns of integers: their distinct numbers, and the rows of each number."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from ..forking import lazy

Integers = npt.NDArray[np.integer[Any]]


def is_ascending(numbers: Integers) -> bool:
    """Return whether the numbers never decrease."""
    return bool((numbers[1:] >= numbers[:-1]).all())


def distinct(numbers: Integers) -> Integers:
    """Return the distinct numbers, ascending. A run's numbers are mostly in order already, and are then not sorted."""
    if not is_ascending(numbers):
        numbers = np.sort(numbers)
    return numbers[_is_first(numbers)]


class Lookup:
    """The rows of a column by their number."""

    def __init__(self, numbers: Integers) -> None:
        self._order = None if is_ascending(numbers) else np.argsort(numbers, kind="stable")
        self._sorted = numbers if self._order is None else numbers[self._order]

    def rows(self, number: int) -> npt.NDArray[np.intp]:
        """Return the rows with a number, ascending: none for another type, or a number that is not an integer."""
        if not isinstance(number, Real):
            return np.empty(0, np.intp)
        first, end = int(self._sorted.searchsorted(number)), int(self._sorted.searchsorted(number, "right"))
        return np.arange(first, end) if self._order is None else self._order[first:end]

    @lazy
    def _starts(self) -> npt.NDArray[np.intp]:
        """The index at which each of the distinct numbers begins among the sorted ones."""
        return np.flatnonzero(_is_first(self._sorted))

    @lazy
    def distinct(self) -> list[int]:
        """The distinct numbers, ascending."""
        return self._sorted[self._starts].tolist()

    def least(self, column: Integers) -> Integers:
        """Return the least value of another column for each of the distinct numbers."""
        return self._reduced(np.minimum, column)

    def greatest(self, column: Integers) -> Integers:
        """Return the greatest value of another column for each of the distinct numbers."""
        return self._reduced(np.maximum, column)

    def _reduced(self, function: np.ufunc, column: Integers) -> Integers:
        if not len(column):
            return column
        in_order = column if self._order is None else column[self._order]
        return function.reduceat(in_order, self._starts)


def _is_first(numbers: Integers) -> npt.NDArray[np.bool_]:
    """Return a mask of the ascending numbers that are the first of their value."""
    is_first = np.ones(len(numbers), bool)
    np.not_equal(numbers[1:], numbers[:-1], out=is_first[1:])
    return is_first
