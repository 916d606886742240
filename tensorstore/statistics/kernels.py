"""Sums and extremes of float32, and conversions to it, by numkong if it is installed.

Its sums of float32 are in float64, and its conversions exact. Its extremes ignore NaN and are sometimes missing, so
they are used for finite numbers only, and numpy computes the others. Its sums of narrower dtypes are not used, because
they are in float32 and treat subnormal numbers as 0.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

logger = logging.getLogger(__name__)

Singles = npt.NDArray[np.float32]

FLOAT32 = np.dtype(np.float32)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)  # ml_dtypes converts it in less than half the time of numkong
_NARROW = {
    np.dtype(np.float16): "f16",
    np.dtype(ml_dtypes.float8_e4m3fn): "e4m3",
    np.dtype(ml_dtypes.float8_e5m2): "e5m2",
}


# The most elements. Above it numpy finds extremes in half the time of numkong, and without the GIL.
_LARGE = 16384
# From so many elements on, the sums are computed without the GIL: fewer take less time than a call by ctypes, 5 us.
_LONG = 32_768
_CHECKED = 10_000  # elements: several rounds of each kernel, and a remainder


@functools.cache
def numkong() -> ModuleType | None:
    """Return the package; None if it is not installed, or not exact on this machine."""
    try:
        import numkong
    except ImportError:
        return None
    # Its kernels differ by processor, and names may differ by release, so it is tested.
    try:
        is_exact = _is_exact(numkong)
    except (AttributeError, BufferError, TypeError, ValueError) as exc:
        is_exact = False
        logger.debug("numkong fails: %s", exc)
    if not is_exact:
        version = getattr(numkong, "__version__", "of an unknown version")
        logger.warning("numkong %s is not used: its results are not those of numpy on this machine", version)
    return numkong if is_exact else None


def _is_exact(package: ModuleType) -> bool:
    """Return whether sums and extremes equal numpy's at all magnitudes, and all conversions are exact."""
    for scale in (1e-42, 1.0, 3e37):
        block = np.arange(_CHECKED, dtype=np.float32) * np.float32(scale / _CHECKED) + np.float32(scale)
        wide = block.astype(np.float64)
        if not np.allclose(package.moments(block), (wide.sum(), np.square(wide).sum()), rtol=1e-12, atol=0):
            return False
    block[_CHECKED // 2] = np.nan
    is_nan = bool(np.isnan(package.moments(block)).all())
    return is_nan and _finds_extremes(package) and all(_converts(package, dtype) for dtype in _NARROW)


def _finds_extremes(package: ModuleType) -> bool:
    """Return whether the extremes are correct for every position and every remainder of a block."""
    low, high = float(np.float32(-3e38)), float(np.float32(1e-45))
    for size in (*range(2, 66), _CHECKED):
        block = np.zeros(size, np.float32)
        for position in range(0, size, 1 if size < _CHECKED else 97):
            block[position - 1], block[position] = low, high
            found = package.minmax(block)
            if found is not None and (found[0], found[2]) != (low, high):
                return False
            block[position - 1] = block[position] = 0
    return True


def _converts(package: ModuleType, dtype: np.dtype[Any]) -> bool:
    every = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)
    converted = np.empty(every.size, np.float32)
    convert(package, every, converted)
    return np.array_equal(converted, every.astype(np.float32), equal_nan=True)


def can_convert(dtype: np.dtype[Any]) -> bool:
    """Return whether `convert` takes a dtype."""
    return dtype in _NARROW or dtype == _BFLOAT16


def convert(package: ModuleType, source: npt.NDArray[Any], target: Singles) -> None:
    """Write a one-dimensional contiguous array of a narrower dtype into one of float32."""
    if source.dtype == _BFLOAT16:
        np.copyto(target, source, casting="unsafe")
        return
    view = package.from_pointer(source.ctypes.data, source.shape, _NARROW[source.dtype], owner=source)
    package.astype(view, "float32", out=target)


def sums_of_float32(block: Singles) -> tuple[float, float]:
    """Return sum(x) and sum(x^2) of a block; NaN if an element is. numkong must be installed."""
    moments = _moments_without_gil() if block.size >= _LONG else None
    if moments is not None:
        return _call(moments, block)
    found: tuple[float, float] = numkong().moments(block)  # type: ignore[union-attr]
    return found


_Sums = ctypes.c_double * 2


def _call(moments: Callable[..., None], block: Singles) -> tuple[float, float]:
    sums = _Sums()
    moments(block.ctypes.data, block.size, block.itemsize, sums, ctypes.byref(sums, ctypes.sizeof(ctypes.c_double)))
    return sums[0], sums[1]


@functools.cache
def _moments_without_gil() -> Callable[..., None] | None:
    """Return `moments` of numkong's interface in C, which ctypes calls without the GIL; None if it cannot be called.

    numkong's functions for Python keep the GIL, for which the training would wait.
    """
    package: Any = numkong()
    if not package.__version__.startswith("7.8."):  # another release may take other arguments, and would crash
        return None
    try:
        moments = ctypes.CDLL(package.moments.__self__.__file__).nk_reduce_moments_f32
    except (AttributeError, OSError):
        return None
    moments.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
    moments.restype = None
    block = np.arange(_CHECKED, dtype=np.float32)
    return moments if _call(moments, block) == package.moments(block) else None


def extremes_of_finite(block: Singles) -> tuple[float, float] | None:
    """Return min(x) and max(x) of a block without infinity or NaN; None if numpy must find them."""
    if block.size > _LARGE:
        return None
    found = numkong().minmax(block)  # type: ignore[union-attr]
    return None if found is None else (found[0], found[2])
