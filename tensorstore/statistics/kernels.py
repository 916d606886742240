"""Sums of float32, and conversions to it, by numkong where it is installed: at the speed of the memory.

Its sums of float32 are in float64, and its conversions exact. Not used are its sums of narrower dtypes, which are in
float32 and take subnormal numbers for 0, and its extremes, which ignore NaN.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Singles = npt.NDArray[np.float32]

_NARROW = {
    np.dtype(np.float16): "f16",
    np.dtype(ml_dtypes.bfloat16): "bf16",
    np.dtype(ml_dtypes.float8_e4m3fn): "e4m3",
    np.dtype(ml_dtypes.float8_e5m2): "e5m2",
}


@functools.cache
def numkong() -> ModuleType | None:
    """Return the package; None where it is not installed, and numpy does all."""
    try:
        import numkong
    except ImportError:
        return None
    return numkong


def can_convert(dtype: np.dtype[Any]) -> bool:
    """Return whether `convert` takes a dtype."""
    return dtype in _NARROW


def convert(package: ModuleType, source: npt.NDArray[Any], target: Singles) -> None:
    """Write a one-dimensional contiguous array of a narrower dtype into one of float32."""
    view = package.from_pointer(source.ctypes.data, source.shape, _NARROW[source.dtype], owner=source)
    package.astype(view, "float32", out=target)


def sums_of_float32(block: Singles) -> tuple[float, float]:
    """Return sum(x) and sum(x^2) of a block, each NaN where an element is. numkong has to be installed."""
    found: tuple[float, float] = numkong().moments(block)  # type: ignore[union-attr]
    return found
