"""The limits of the dtypes of numpy and ml_dtypes, for subnormal numbers and for saturation."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np


class Limits(NamedTuple):
    """The limits of a dtype's finite numbers, as float; those of integers as int, for exactness."""

    normal: float
    """The least positive normal number; 0 for integers, which have no subnormal ones."""
    lowest: float
    """The least finite number; -inf if it does not mean saturation, like the 0 of unsigned integers."""
    highest: float
    """The greatest finite number; inf for bool."""


NO_LIMITS = Limits(0.0, -math.inf, math.inf)


@functools.lru_cache(maxsize=256)
def limits_of(dtype: np.dtype[Any]) -> Limits:
    """Return the limits of a dtype of real numbers."""
    if dtype.kind == "b":
        return NO_LIMITS
    try:
        return _of_float(ml_dtypes.finfo(dtype))  # type: ignore[no-untyped-call]
    except ValueError:
        whole = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        return Limits(0.0, whole.min or -math.inf, whole.max)


def _of_float(known: Any) -> Limits:
    highest = float(known.max)
    if math.isinf(highest):  # a longdouble, whose statistics are computed in float64
        return limits_of(np.dtype(np.float64))
    return Limits(float(known.smallest_normal), float(known.min), highest)
