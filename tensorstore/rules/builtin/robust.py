"""Scores of a value against earlier ones."""

from __future__ import annotations

import statistics
from collections.abc import Collection

# The median absolute deviation of a normal distribution is its standard deviation divided by this (P. J. Rousseeuw and
# C. Croux, "Alternatives to the Median Absolute Deviation", 1993).
_TO_SIGMA = 1.4826


def robust_score(value: float, before: Collection[float]) -> tuple[float, float]:
    """Return how far a value is above the median of earlier ones, in robust standard deviations, and that median.

    Equal earlier values have no deviation; a thousandth of their size is used instead.
    """
    median = statistics.median(before)
    deviation = _TO_SIGMA * statistics.median(abs(each - median) for each in before)
    return (value - median) / max(deviation, 1e-3 * abs(median), 1e-12), median


def standard_score(value: float, before: Collection[float]) -> tuple[float, float]:
    """Return how far a value is above the mean of earlier ones, in standard deviations, and that mean.

    The deviation has ddof=1. Equal earlier values have none; a thousandth of their size is used instead.
    """
    mean = statistics.fmean(before)
    return (value - mean) / max(statistics.stdev(before), 1e-3 * abs(mean), 1e-12), mean
