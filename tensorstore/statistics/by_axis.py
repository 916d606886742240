"""The statistics of a tensor for each index along one of its axes: of each channel, or of each head.

The statistics for index i are those of `array.take(i, axis)`. Short slices are reduced together, as the rows of a
float64 matrix that fits into the processor's cache. Each long one is reduced separately.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .blocks import BLOCK, Array, nature
from .definitions import COMPLEX_STATISTICS, COUNTS, DEGREES, FORMULAS, ArrayOperations, parse_statistic
from .limits import Limits, limits_of
from .single import (
    LEAST_EXPONENT,
    SAFE_LEAST,
    SAFE_SQUARES,
    is_wide,
    product_by_exponents,
    saturated_integers,
    statistics,
)
from .sums import Floats

# A block and its intermediate results fit into the first-level cache, in reused memory. For a transposed tensor, fewer
# adjacent rows would fetch the same memory repeatedly.
_BLOCK = 8192
_SIDE_BY_SIDE = 16
_LONG = BLOCK // _SIDE_BY_SIDE


def axis_within(axis: int, shape: Sequence[int]) -> int | None:
    """Return an axis counted from the first one; None if a tensor of this shape does not have it."""
    return axis % len(shape) if -len(shape) <= axis < len(shape) else None


def statistics_by_axis(array: Array, names: Iterable[str], axis: int) -> dict[str, Floats]:
    """Return statistics for each index along an axis, by canonical name.

    Args:
        array: Of any shape with this axis, and of any dtype and memory order.
        names: Statistics, as `parse_statistic` takes them. Those that the dtype does not define are left out.
        axis: Negative ones count from the last axis.

    Returns:
        Arrays of shape (array.shape[axis],).

    Raises:
        ConfigurationError: A name is not one of a statistic.
    """
    array = np.asarray(array)
    wanted = tuple(dict.fromkeys(parse_statistic(name) for name in names))
    kind = nature(array.dtype)
    if kind == "none":
        return {}
    slices = np.moveaxis(array, axis, 0)
    count = math.prod(slices.shape[1:])
    if kind == "complex":
        wanted = tuple(name for name in wanted if name in COMPLEX_STATISTICS)
    if array.size == 0:
        return {name: np.full(len(slices), 0.0 if name in COUNTS else math.nan) for name in wanted}
    if kind == "complex" or count > _LONG:
        each = [statistics(part, wanted) for part in slices]
        return {name: np.array([found[name] for found in each]) for name in wanted}
    size = max(_SIDE_BY_SIDE, _BLOCK // count)
    with np.errstate(all="ignore"):
        blocks = [_Rows(slices[begin : begin + size], count) for begin in range(0, len(slices), size)]
        found = [[FORMULAS[name](block) for name in wanted] for block in blocks]
        if array.dtype.kind == "f" and array.dtype.itemsize >= 8 and not DEGREES.keys().isdisjoint(wanted):
            for block, columns in zip(blocks, found, strict=True):
                block.correct(columns, wanted)
    return {name: np.concatenate(parts) for name, parts in zip(wanted, zip(*found, strict=True), strict=True)}


class _Rows(ArrayOperations):
    """The quantities of each slice of real numbers, all slices of `count` elements."""

    def __init__(self, slices: Array, count: int) -> None:
        self.count = count
        self._slices = slices
        self._limits: Limits = limits_of(slices.dtype)
        self._values: Floats = np.empty((len(slices), count))
        np.copyto(self._values.reshape(slices.shape), slices, casting="unsafe")

    def correct(self, columns: Sequence[Floats], names: tuple[str, ...]) -> None:
        """Compute rows again whose numbers have powers outside of the range of float64."""
        squared, (low, high) = _squares(self._values), SAFE_SQUARES
        for row in np.flatnonzero(~((low < squared) & (squared < high)) & (self.magnitude > 0)).tolist():
            for column, value in zip(columns, statistics(self._slices[row], names).values(), strict=True):
                column[row] = value

    @cached_property
    def low(self) -> Floats:
        return self._values.min(axis=1)

    @cached_property
    def high(self) -> Floats:
        return self._values.max(axis=1)

    @cached_property
    def _magnitudes(self) -> Floats:
        return np.absolute(self._values)

    @property
    def abs_low(self) -> Floats:
        return self._magnitudes.min(axis=1)

    @cached_property
    def total(self) -> Floats:
        return self._values.sum(axis=1)

    @cached_property
    def magnitude(self) -> Floats:
        return self._magnitudes.sum(axis=1)

    @cached_property
    def norm(self) -> Floats:
        return self.magnitude if self.count == 1 else np.sqrt(_squares(self._values))

    @cached_property
    def _centered(self) -> Floats:
        centered: Floats = self._values - (self.total / self.count)[:, None]
        # The mean is subtracted again, to correct its rounding error.
        centered -= centered.mean(axis=1, keepdims=True)
        return centered

    @cached_property
    def spread(self) -> Floats:
        return _squares(self._centered)

    @property
    def abs_spread(self) -> Floats:
        centered: Floats = self._magnitudes - (self.magnitude / self.count)[:, None]
        centered -= centered.mean(axis=1, keepdims=True)
        return _squares(centered)

    @property
    def third(self) -> Floats:
        return (self._centered**3).sum(axis=1)

    @property
    def fourth(self) -> Floats:
        return _squares(np.square(self._centered))

    @property
    def nans(self) -> Floats:
        return _counts(np.isnan(self._values))

    @property
    def infs(self) -> Floats:
        return _counts(np.isinf(self._values))

    @property
    def zeros(self) -> Floats:
        return _counts(self._values == 0)

    @property
    def subnormals(self) -> Floats:
        return _counts((self._magnitudes < self._limits.normal) & (self._values != 0))

    @property
    def saturated(self) -> Floats:
        if is_wide(self._slices.dtype):
            return _counts(saturated_integers(self._slices).reshape(self._values.shape))
        # A limit is infinite if the dtype has no such number.
        at_limit = (self._values == self._limits.lowest) | (self._values == self._limits.highest)
        return _counts(at_limit & np.isfinite(self._values))

    @property
    def median(self) -> Floats:
        return _medians(self._values)

    @property
    def abs_median(self) -> Floats:
        return _medians(self._magnitudes)

    @property
    def product(self) -> Floats:
        products: Floats = np.multiply.reduce(self._values, axis=1)
        # The geometric mean of |x| is at most the arithmetic one: the product of most weights is 0.
        vanishes = self.count * np.log2(self.magnitude / self.count) < LEAST_EXPONENT
        products[vanishes] = 0.0
        unsure = ~vanishes & ~((np.absolute(products) > SAFE_LEAST) & np.isfinite(products))
        finite = unsure & np.isfinite(self.magnitude)
        if finite.any():
            mantissas, exponents = product_by_exponents(self._values[finite])
            products[finite] = np.ldexp(mantissas, np.clip(exponents, -(1 << 30), 1 << 30).astype(np.int32))
        for row in np.flatnonzero(unsure & ~finite).tolist():
            products[row] = statistics(self._slices[row], ("prod",))["prod"]
        return products


def _squares(values: Floats) -> Floats:
    return np.einsum("ij,ij->i", values, values)


def _counts(chosen: npt.NDArray[np.bool_]) -> Floats:
    return np.count_nonzero(chosen, axis=1).astype(np.float64)


def _medians(values: Floats) -> Floats:
    """Return the middle value of each row, or the mean of the two middle ones; NaN if the row has one."""
    below, above = (values.shape[1] - 1) // 2, values.shape[1] // 2
    ordered = np.partition(values, sorted({below, above, values.shape[1] - 1}), axis=1)
    low, high = ordered[:, below], ordered[:, above]
    medians: Floats = (low + high) / 2
    medians = np.where(np.isfinite(medians), medians, low / 2 + high / 2)
    medians[np.isnan(ordered[:, -1])] = math.nan  # NaN is ordered last
    return medians
