"""Histograms of the finite values of an array."""

from __future__ import annotations

import math

import numpy as np

from ..errors import ConfigurationError
from .blocks import Array, blocks, nature
from .sums import Floats

_BINNED = 16384  # a histogram uses several arrays of this size
_HALF_RANGE = 2.0**1023 - 2.0**970  # half the greatest float64


def histogram(array: Array, bins: int = 64) -> tuple[list[float], list[int]] | None:
    """Return bins + 1 ascending edges and bins counts of the finite values, as numpy.histogram draws them.

    The edges go from the least to the greatest finite value. A bin includes its left edge, the last bin both. A single
    distinct value gets edges half a unit on each side; values that are too close for the number of bins get the
    smallest margin that makes the edges differ. None without a finite value, and for complex and other dtypes.
    """
    if bins < 1:
        raise ConfigurationError(f"a histogram needs at least one bin, got bins={bins}")
    array = np.asarray(array)
    if array.size == 0 or nature(array.dtype) != "real":
        return None
    with np.errstate(all="ignore"):
        low, high = _finite_range(array)
        return None if low > high else _histogram(array, low, high, bins)


def _finite_range(array: Array) -> tuple[float, float]:
    """Return the least and the greatest finite value; (inf, -inf) if there is none."""
    low, high = math.inf, -math.inf
    for source, block in blocks(array):
        least, greatest = float(np.minimum.reduce(source)), float(np.maximum.reduce(source))
        if not -math.inf < least <= greatest < math.inf:
            finite = block[np.isfinite(block)]
            if not finite.size:
                continue
            least, greatest = float(finite.min()), float(finite.max())
        low, high = min(low, least), max(high, greatest)
    return low, high


def _histogram(array: Array, low: float, high: float, bins: int) -> tuple[list[float], list[int]]:
    scale = 1.0
    # The range that makes the edges differ, also for very large and very small numbers.
    least_half = bins * max(abs(low) * 2.0**-50, abs(high) * 2.0**-50, 2.0**-1070)
    if high - low < least_half:
        middle, half = low + (high - low) / 2, max(0.5, least_half) if low == high else least_half
        low, high = middle - half, middle + half
    if not high - low < math.inf:
        scale = 0.5  # exact, because these are not small numbers
        low, high = max(low * scale, -_HALF_RANGE), min(high * scale, _HALF_RANGE)
    edges: Floats = np.linspace(low, high, bins + 1)
    counts = np.zeros(bins, np.int64)
    for _, block in blocks(array, _BINNED):
        counts += _bin(block if scale == 1.0 else block * scale, edges)
    return (edges / scale).tolist(), counts.tolist()


def _bin(block: Floats, edges: Floats) -> Array:
    """Count the finite values of a block between the edges, as numpy does for uniform bins."""
    bins, low, width = edges.size - 1, edges[0], edges[-1] - edges[0]
    position = (block - low) / width * bins
    finite = np.isfinite(position)
    if not finite.all():
        block, position = block[finite], position[finite]
    index = np.minimum(position.astype(np.intp), bins - 1)
    # Rounding may have moved a value on an edge into the wrong bin.
    index -= block < edges[index]
    index += (block >= edges[index + 1]) & (index < bins - 1)
    return np.bincount(index, minlength=bins)
