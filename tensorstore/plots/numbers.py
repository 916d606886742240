"""Elements of a tensor as numbers that can be drawn."""

from __future__ import annotations

import numpy as np

from ..dtypes import Array


def as_floats(value: Array) -> Array | None:
    """Return the elements as float64: magnitudes of complex ones, and None for texts and records."""
    if value.dtype.kind in "mM":
        value = value.astype(np.int64)
    try:
        with np.errstate(all="ignore"):
            return np.asarray(np.abs(value) if value.dtype.kind == "c" else value).astype(np.float64)
    except (TypeError, ValueError):
        return None
