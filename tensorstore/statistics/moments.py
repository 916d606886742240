"""The third and fourth central moments of a block, and of two parts of one tensor together."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from .blocks import Array, scratch_memory
from .sums import Floats, products, squares, total


class Moments(Protocol):
    """The sums of a part of a tensor, of powers of x - mean."""

    count: int
    spread: float
    third: float
    fourth: float


def central_moments(block: Array, rounded: float, scratch: Floats) -> tuple[float, float, float, float]:
    """Return mean - `rounded`, and the sums of (x - mean)^2, (x - mean)^3 and (x - mean)^4 of a block.

    `scratch` has the size of the block and is overwritten.
    """
    centred = np.subtract(block, rounded, out=scratch, dtype=np.float64)
    # Once more, for what the rounding of the mean has left.
    rest = total(centred) / block.size
    np.subtract(centred, rest, out=centred)
    squared = np.square(centred, out=scratch_memory(2)[: block.size])
    return rest, total(squared), products(squared, centred), squares(squared)


def merged_moments(one: Moments, other: Moments, between: float) -> tuple[float, float]:
    """Return the third and fourth moment of two disjoint parts together, whose means are `between` apart.

    Pebay, SAND2008-6212, equations 2.1 and 2.2, for sums instead of means.
    """
    count = one.count + other.count
    share, others = one.count / count, other.count / count
    square = between * between
    third = one.third + other.third
    third += between * square * one.count * others * (share - others)
    third += 3 * between * (share * other.spread - others * one.spread)
    fourth = one.fourth + other.fourth
    fourth += square * square * one.count * others * (share * share - share * others + others * others)
    fourth += 6 * square * (share * share * other.spread + others * others * one.spread)
    fourth += 4 * between * (share * other.third - others * one.third)
    return third, fourth
