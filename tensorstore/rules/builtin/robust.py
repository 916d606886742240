"""Scores of a value against earlier ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence

# The median absolute deviation of a normal distribution is its standard deviation divided by this (P. J. Rousseeuw and
# C. Croux, "Alternatives to the Median Absolute Deviation", 1993).
_TO_SIGMA = 1.4826


def robust_score(value: float, before: Collection[float]) -> tuple[float, float]:
    """Return the distance of a value above the median of earlier ones, in robust standard deviations, and the median.

    If the earlier values are equal, a thousandth of their magnitude is the deviation.
    """
    median = statistics.median(before)
    deviation = _TO_SIGMA * statistics.median([abs(each - median) for each in before])
    return (value - median) / max(deviation, 1e-3 * abs(median), 1e-12), median


def standard_score(value: float, before: Collection[float]) -> tuple[float, float]:
    """Return the distance of a value above the mean of earlier ones, in standard deviations, and the mean.

    The deviation has ddof=1. If the earlier values are equal, it is a thousandth of their magnitude.
    """
    mean = statistics.fmean(before)
    deviation = math.dist(before, [mean] * len(before)) / math.sqrt(len(before) - 1)
    return (value - mean) / max(deviation, 1e-3 * abs(mean), 1e-12), mean


def relative_distance(step: int, earlier: Sequence[int]) -> float:
    """Return the distance of a step from the median of earlier ones, by the distance if all were evenly spaced.

    A series that gains speed, as at the beginning of a training, moves by up to the square of it.
    """
    if (n := len(earlier)) < 2:
        return 1.0
    quarter, median, three_quarters = (_quantile(earlier, share) for share in (0.25, 0.5, 0.75))
    return max(1.0, (step - median) * (n - 1) / (max(three_quarters - quarter, 0.5) * (n + 1)))


def _quantile(ascending: Sequence[int], share: float) -> float:
    at, rest = divmod(share * (len(ascending) - 1), 1)
    low = ascending[int(at)]
    return low + rest * (ascending[min(int(at) + 1, len(ascending) - 1)] - low)
