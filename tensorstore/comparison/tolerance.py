"""The tolerance of a comparison, and the distance of two values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from ..dtypes import Array
from ..errors import ConfigurationError

_BLOCK = 1 << 20
_FLOAT_BYTES = (1, 2, 4, 8)
_MOST_ULPS = (1 << 64) - 1


@dataclass(frozen=True)
class Tolerance:
    """The tolerance within which values are the same. Without any number, they must agree bit by bit.

    Args:
        rtol: The tolerance relative to |b|: elements agree if |a-b| <= atol + rtol*|b|.
        atol: The absolute tolerance.
        ulps: Floats also agree if they are at most this many representable numbers apart.

    Raises:
        ConfigurationError: A number is negative, NaN or infinite.
    """

    rtol: float | None = None
    atol: float | None = None
    ulps: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not (isinstance(value, Real) and math.isfinite(value) and float(value) >= 0):
                raise ConfigurationError(f"{name} must be a number of 0 or more, got {value!r}")

    @property
    def is_exact(self) -> bool:
        """True if every bit counts."""
        return self.rtol is None and self.atol is None and self.ulps is None


@dataclass(frozen=True)
class Gap:
    """The distance of two values."""

    agrees: bool
    """True if all elements agree within the tolerance."""
    max_abs: float | None = None
    """The largest |a-b|; NaN if one of two elements is; None if the values are not numbers."""
    ulps: int | None = None
    """The largest distance in representable numbers; None unless both are floats of one dtype."""
    elements: int | None = None
    """The number of elements that do not agree."""


def measure(a: Array, b: Array, tolerance: Tolerance) -> Gap:
    """Return the distance of two values of one shape.

    With a tolerance NaN agrees with NaN, and 0.0 with -0.0. Without one, every bit counts.
    """
    if not (_is_number(a) and _is_number(b)):
        return Gap(a.dtype == b.dtype and a.tobytes() == b.tobytes())
    apart, steps, most = 0, 0, 0.0
    comparable = a.dtype == b.dtype and _is_float(a)
    for x, y in _blocks(a, b):
        with np.errstate(all="ignore"):  # warnings of a signaling NaN, and of infinity minus infinity
            between = _steps_between(x, y) if comparable else None
            agree, distance = _agree(x, y, between, tolerance)
        apart += int(len(x) - np.count_nonzero(agree))
        if distance.size:
            most = float(np.maximum(most, distance.max()))
            steps = max(steps, 0 if between is None else int(between.max()))
    if a.dtype != b.dtype and tolerance.is_exact:
        return Gap(False, most, None, apart)
    return Gap(not apart, most, steps if comparable and not math.isnan(most) else None, apart)


def _agree(x: Array, y: Array, between: Array | None, tolerance: Tolerance) -> tuple[Array, Array]:
    """Return a mask of the elements that agree, and |x-y|, which is 0 if both are NaN or the same infinity."""
    is_complex, is_long = "c" in (x.dtype.kind, y.dtype.kind), np.longdouble in (x.dtype.type, y.dtype.type)
    wide: Any = np.complex128 if is_complex else np.longdouble if is_long else np.float64
    p, q = x.astype(wide), y.astype(wide)
    alike: Array = np.equal(p, q) | (np.isnan(p) & np.isnan(q))
    distance = np.where(alike, 0.0, np.abs(p - q))
    if x.dtype.kind in "iu" and y.dtype.kind in "iu":
        # float64 cannot represent all of int64.
        alike = np.equal(x, y)
        distance = np.where(alike, 0.0, np.maximum(distance, 1.0))
    if tolerance.is_exact:
        return (_same_bits(x, y) if x.dtype == y.dtype else alike), distance
    finite = np.isfinite(p) & np.isfinite(q)
    close = finite & (distance <= (tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * np.abs(q))
    if tolerance.ulps is not None and between is not None:
        close |= finite & (between <= np.uint64(min(tolerance.ulps, _MOST_ULPS)))
    return alike | close, distance


def _same_bits(x: Array, y: Array) -> Array:
    size = x.dtype.itemsize
    return (x.view(np.uint8).reshape(-1, size) == y.view(np.uint8).reshape(-1, size)).all(axis=1)


def _steps_between(x: Array, y: Array) -> Array:
    """Return the distances of floats in representable numbers, as uint64; 0 if both are NaN."""
    p, q = _ordered(x), _ordered(y)
    # Arithmetic modulo 2^64 is correct for distances of two int64 that overflow int64.
    between = np.maximum(p, q).view(np.uint64) - np.minimum(p, q).view(np.uint64)
    return np.where(np.isnan(x.astype(np.float64)) & np.isnan(y.astype(np.float64)), np.uint64(0), between)


def _ordered(x: Array) -> Array:
    """Return integers in the order of the floats, with a difference of 1 between neighbors; both zeros are 0."""
    size = x.dtype.itemsize
    bits = x.view(f"i{size}").astype(np.int64)
    magnitude = bits & np.int64((1 << 8 * size - 1) - 1)
    return np.where(bits < 0, -magnitude, magnitude)


def _blocks(a: Array, b: Array) -> Iterator[tuple[Array, Array]]:
    """Yield pieces of both values, so that the wider copies stay small."""
    x, y = np.ascontiguousarray(a).reshape(-1), np.ascontiguousarray(b).reshape(-1)
    for begin in range(0, len(x), _BLOCK):
        yield x[begin : begin + _BLOCK], y[begin : begin + _BLOCK]


def _is_float(value: Array) -> bool:
    return value.dtype.itemsize in _FLOAT_BYTES and (value.dtype.kind == "f" or _is_small_float(value.dtype))


def _is_small_float(dtype: Any) -> bool:
    return dtype.kind == "V" and dtype.fields is None and ("float" in dtype.name)


def _is_number(value: Array) -> bool:
    return value.dtype.kind in "biufc" or _is_small_float(value.dtype) or value.dtype.name in ("int4", "uint4")
