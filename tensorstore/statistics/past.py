"""The distance of a value from its own past."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence

_IQR_TO_SIGMA = 1.349
"""The interquartile range of a normal distribution in standard deviations."""
_LEAST_SPREAD = 0.01
"""A series that hardly moved has no spread; this part of its size is used instead."""


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


def past_scores(values: Iterable[float], fewest: int = 5) -> Iterator[float]:
    """Yield how far each value of a series is from all earlier finite ones: `past_score` of it.

    Args:
        values: The series, in its order.
        fewest: How many earlier values make a past; the score is 0 before.

    Yields:
        A score for each value, NaN for one that is not finite.
    """
    past: list[float] = []
    for value in values:
        if not math.isfinite(value):
            yield math.nan
            continue
        yield past_score(value, past)[0] if len(past) >= fewest else 0.0
        insort(past, value)
