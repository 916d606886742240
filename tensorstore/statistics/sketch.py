"""The sketch of a tensor's distribution, from which any quantile can be read. Sketches are merged by adding counts.

A sketch has the distinct elements, rounded to 7 significant binary digits (ties away from zero), and their counts. So
a rounded number differs from the element by at most 1/128 of it, or 2^-1029 if the element is smaller than the least
normal float64. Zeros, infinities and NaN are not rounded, and a finite number stays finite. Rounding keeps the
order, so a quantile of the sketch is the rounded quantile of the elements.

The rounding works on bits, and is the same for each dtype. The sum of the sketches of parts is exactly the sketch of
the whole.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from numbers import Real
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ConfigurationError
from .blocks import Array, blocks, flattened, nature
from .sums import Floats

Counts = npt.NDArray[np.int64]

_KEPT_BITS = 6  # bits of a float64's mantissa, without the implied one
_CUT_BITS = 52 - _KEPT_BITS
_MAGNITUDE = np.uint64((1 << 63) - 1)
_INFINITE = 2047 << _KEPT_BITS
_NAN = _INFINITE + 1
_PATTERNS = 2 * (_NAN + 1)
# Up to this number, elements are sorted. More are counted in a table of all patterns.
_FEW = 16384
# The upper half of a float32 has 7 bits of the mantissa: enough to round to 6 once the elements are counted by it.
_UPPER = 1 if sys.byteorder == "little" else 0
_UPPER_PATTERNS = 1 << 16
_COUNTED = 1 << 18  # elements at once, so that adding the counts takes little of the time
_UPPER_SIGN = 1 << 15
_UPPER_EXPONENT = np.uint16(0x7F80)
_BIAS = (1023 - 127) << _KEPT_BITS


class Sketch(NamedTuple):
    """Rounded numbers, ascending with NaN last, and their counts of elements."""

    values: Floats
    counts: Counts


def sketch_of(array: Array) -> Sketch | None:
    """Return the sketch of all elements of an array in any memory order; None for complex and other dtypes."""
    array = np.asarray(array)
    if nature(array.dtype) != "real":
        return None
    with np.errstate(all="ignore"):
        if array.size <= _FEW:
            return _decoded(*np.unique(_patterns(array.astype(np.float64).reshape(-1)), return_counts=True))
        flat = flattened(array) if array.dtype == np.float32 or array.dtype.itemsize <= 2 else None
        if flat is not None and flat.itemsize <= 2:
            return _of_short(flat)
        table = np.zeros(_PATTERNS, np.int64)
        if flat is not None:
            _count_float32(flat, table)
        else:
            for _, block in blocks(array):
                _count(block, table)
    patterns = np.flatnonzero(table)
    return _decoded(patterns, table[patterns])


def merged(sketches: Iterable[Sketch]) -> Sketch:
    """Return the sketch of all elements of several sketches."""
    parts = list(sketches)
    if not parts:
        return Sketch(np.empty(0), np.empty(0, np.int64))
    values, positions = np.unique(np.concatenate([part.values for part in parts]), return_inverse=True)
    counts = np.zeros(len(values), np.int64)
    np.add.at(counts, positions, np.concatenate([part.counts for part in parts]))
    return Sketch(values, counts)


def quantile(sketch: Sketch, q: float) -> float:
    """Return the least rounded element x for which at least the share q of all rounded elements is at most x.

    It is `numpy.quantile(rounded, q, method="inverted_cdf")`, and NaN if an element is NaN or there are no elements.

    Args:
        sketch: The sketch.
        q: From 0 to 1.

    Raises:
        ConfigurationError: q is outside of this range, or not a number.
    """
    if not isinstance(q, Real) or not 0 <= q <= 1:
        raise ConfigurationError(f"q must be a number from 0 to 1, got {q!r:.200}")
    values, counts = sketch
    if not len(values) or values[-1] != values[-1]:
        return math.nan
    below = np.cumsum(counts)
    return float(values[np.searchsorted(below, q * below[-1])])


def _patterns(block: Floats) -> Counts:
    """Return the rounded pattern of each number: exponent and upper mantissa as an integer, then the sign."""
    bits = block.view(np.uint64)
    magnitudes = bits & _MAGNITUDE
    codes = ((magnitudes + np.uint64(1 << (_CUT_BITS - 1))) >> np.uint64(_CUT_BITS)).view(np.int64)
    if codes.max(initial=0) >= _INFINITE:
        # Finite numbers stay finite, and do not round to infinity.
        infinite = np.uint64(_INFINITE << _CUT_BITS)
        codes = np.where(magnitudes < infinite, np.minimum(codes, _INFINITE - 1), _INFINITE)
        codes[magnitudes > infinite] = _NAN
    return codes << 1 | (bits >> np.uint64(63)).view(np.int64)


def _count(block: Floats, table: Counts) -> None:
    if block.size:
        patterns = _patterns(block)
        least = int(patterns.min())
        counts = np.bincount(patterns - least)
        table[least : least + len(counts)] += counts


def _of_short(flat: Array) -> Sketch:
    """Return the sketch of numbers of one or two bytes, which are counted directly."""
    kind = f"u{flat.itemsize}"
    counts = np.zeros(1 << 8 * flat.itemsize, np.int64)
    for start in range(0, flat.size, _COUNTED):
        counts += np.bincount(flat[start : start + _COUNTED].view(kind), minlength=len(counts))
    found = np.flatnonzero(counts)
    return _decoded(_patterns(found.astype(kind).view(flat.dtype).astype(np.float64)), counts[found])


def _count_float32(flat: Array, table: Counts) -> None:
    """Count numbers of float32 by their upper halves, in one pass over the memory."""
    by_upper = np.zeros(_UPPER_PATTERNS, np.int64)
    for start in range(0, flat.size, _COUNTED):
        part = flat[start : start + _COUNTED]
        uppers = part.view(np.uint16)[_UPPER::2]
        counts = np.bincount(uppers, minlength=_UPPER_PATTERNS)
        if special := int(counts[_SPECIAL].sum()):
            _count_special(part, uppers, special, table)
            counts[_SPECIAL] = 0
        by_upper += counts
    found = np.flatnonzero(by_upper)
    rounded = ((found & (_UPPER_SIGN - 1)) + 1 >> 1) + _BIAS
    np.add.at(table, rounded << 1 | found >> 15, by_upper[found])


_EXPONENTS = np.arange(_UPPER_PATTERNS) & _UPPER_EXPONENT
_SPECIAL = np.flatnonzero((_EXPONENTS == 0) | (_EXPONENTS == _UPPER_EXPONENT))
"""The upper halves of zeros, subnormals, infinities and NaN, which do not determine the number."""


def _count_special(part: Array, uppers: Array, number: int, table: Counts) -> None:
    zeros = int(np.count_nonzero(part == 0))
    table[0] += zeros
    if zeros < number:
        exponents = uppers & _UPPER_EXPONENT
        special = ((exponents == 0) | (exponents == _UPPER_EXPONENT)) & (part != 0)
        _count(part[special].astype(np.float64), table)


def _decoded(patterns: Counts, counts: Counts) -> Sketch:
    """Return the sketch of counts by pattern."""
    codes = (patterns >> 1).astype(np.uint64)
    values: Floats = (
        codes << np.uint64(_CUT_BITS) | (patterns.astype(np.uint64) & np.uint64(1)) << np.uint64(63)
    ).view(np.float64)
    values[codes == _NAN] = math.nan
    return merged([Sketch(values + 0.0, counts.astype(np.int64))])
