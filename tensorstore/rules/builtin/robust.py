"""Scores of a value against earlier ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence

# The median absolute deviation of a normal distribution is its standard deviation divided by this (P. J. Rousseeuw and
# C. Croux, "Alternatives to the Median Absolute Deviation", 1993).
_TO_SIGMA = 1.4826
_IQR_TO_SIGMA = 1.349
"""The interquartile range of a normal distribution in standard deviations."""
_LEAST_SPREAD = 0.01
"""A series that hardly moved has no spread; this part of its size is used instead."""


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


def past_score(value: float, past: Sequence[float]) -> tuple[float, float]:
    """Return how far a value is above the median of earlier ones, in units of their spread, and that median.

    The spread is the interquartile range / 1.349, which is the standard deviation of a normal distribution. Positive
    values are compared by their logarithm, so that halving is as far as doubling.

    Args:
        value: The newest value.
        past: The earlier values, ascending.
    """
    quarter, median, three_quarters = (past[round(part * (len(past) - 1))] for part in (0.25, 0.5, 0.75))
    if past[0] > 0 and value > 0:
        log = math.log
        spread = max((log(three_quarters) - log(quarter)) / _IQR_TO_SIGMA, math.log1p(_LEAST_SPREAD))
        return (log(value) - log(median)) / spread, median
    spread = max((three_quarters - quarter) / _IQR_TO_SIGMA, _LEAST_SPREAD * abs(median), 1e-12)
    return (value - median) / spread, median
