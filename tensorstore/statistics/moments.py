"""The third and fourth central moments of a block, and of two parts of one tensor together."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from .blocks import Array, scratch_memory
from .sums import Floats, products, squares, total


class Moments(Protocol):
    """The sums of a part of a tensor, of which `total` is sum(x) and the others are of powers of x - mean."""

    count: int
    total: float
    spread: float
    third: float
    fourth: float


def central_moments(block: Array, mean: float, scratch: Floats) -> tuple[float, float]:
    """Return sum((x - mean)^3) and sum((x - mean)^4) of a block. `scratch` has its size and is overwritten."""
    centred = np.subtract(block, mean, out=scratch, dtype=np.float64)
    # Once more, for what the rounding of the mean has left.
    np.subtract(centred, total(centred) / block.size, out=centred)
    squared = np.square(centred, out=scratch_memory(2)[: block.size])
    return products(squared, centred), squares(squared)


def merged_moments(one: Moments, other: Moments) -> tuple[float, float]:
    """Return the third and fourth moment of two disjoint parts together, neither of them empty.

    Pebay, SAND2008-6212, equations 2.1 and 2.2, for sums instead of means.
    """
    count = one.count + other.count
    share, others = one.count / count, other.count / count
    between = other.total / other.count - one.total / one.count
    third = one.third + other.third
    third += between**3 * one.count * others * (share - others)
    third += 3 * between * (share * other.spread - others * one.spread)
    fourth = one.fourth + other.fourth
    fourth += between**4 * one.count * others * (share * share - share * others + others * others)
    fourth += 6 * between * between * (share * share * other.spread + others * others * one.spread)
    fourth += 4 * between * (share * other.third - others * one.third)
    return third, fourth
