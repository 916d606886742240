"""The distance of a value from its own past."""

from __future__ import annotations

import math
from array import array
from bisect import insort
from collections.abc import Callable, Sequence
from operator import itemgetter

import numpy as np

from .sums import Floats

_IQR_TO_SIGMA = 1.349
"""The interquartile range of a normal distribution in standard deviations."""
_LEAST_SPREAD = 0.01
"""The least spread of a series, relative to its magnitude."""
_SHARES = (0.25, 0.5, 0.75)
_LEAST_GROWTH = 8
"""The share of a series by which it may grow before its quartiles are read again is 1 / this."""
_TOGETHER = 1024
"""The series of which several steps are scored at once: what that needs fits into the processor's cache."""
_FEW = 8
"""The share of the series of a step that are scored one by one is 1 / this at most."""


def past_scores(values: Floats, pasts: Sequence[array[float]], fewest: int) -> tuple[Floats, Floats]:
    """Return the distances of values above the medians of earlier ones, in units of spread, and add the values.

    The spread is the interquartile range / 1.349, which is the standard deviation of a normal distribution. Positive
    values are compared by their logarithm, so that halving is as large a change as doubling.

    Args:
        values: The newest value of each of n series, shape (n,).
        pasts: The earlier finite values of each series, ascending, as float64. The newest value is added if finite.
        fewest: The fewest earlier values for a score.

    Returns:
        The scores and the medians, both of shape (n,) and NaN where there is no score.
    """
    finite = np.isfinite(values)
    scored = [at for at in np.flatnonzero(finite).tolist() if len(pasts[at]) >= fewest]
    scores, medians = np.full((2, len(values)), np.nan)
    if scored:
        scores[scored], medians[scored] = _scores(values[scored], [pasts[at] for at in scored])
    for at, value in zip(np.flatnonzero(finite).tolist(), values[finite].tolist(), strict=True):
        insort(pasts[at], value)
    return scores, medians


def scores_of_steps(values: Floats, pasts: Sequence[array[float]], fewest: int) -> tuple[Floats, Floats]:
    """Return what `past_scores` returns for the next values of n series, shape (steps, n), and add these values."""
    scores, medians = np.empty((2, *values.shape))
    if len(values) > 1 and min(map(len, pasts)) >= max(fewest, 1) and np.isfinite(values).all():
        for first in range(0, len(pasts), _TOGETHER):
            some = slice(first, first + _TOGETHER)
            found = _scored(values[:, some], *_before_each_step(values[:, some], pasts[some]))
            scores[:, some], medians[:, some] = found
            _add(values[:, some], pasts[some])
    else:
        for step, newest in enumerate(values):
            scores[step], medians[step] = past_scores(newest, pasts, fewest)
    return scores, medians


def _before_each_step(values: Floats, pasts: Sequence[array[float]]) -> Floats:
    """Return the least value and the quartiles of each series before each step, shape (4, steps, n).

    The value of rank r of two ascending series together is the least of max(a[r - j], b[j - 1]) for j = 0, 1, …, where
    what lies before a series is -inf, and what lies after it inf.
    """
    steps, n = values.shape
    last = np.array(list(map(len, pasts))) - 1
    # The part of each series around each quartile that may contain it at one of the steps.
    starts, width = np.rint(np.outer(_SHARES, last)).astype(np.int64) - steps, 2 * steps + 1
    parts = np.full((len(_SHARES), n, width), np.inf)
    for at, past in enumerate(pasts):
        numbers = np.frombuffer(past)
        for part, start in zip(parts[:, at], starts[:, at].tolist(), strict=True):
            missing = max(0, -start)
            part[:missing] = -np.inf
            known = numbers[start + missing : start + width]
            part[missing : missing + len(known)] = known
    found = np.empty((1 + len(_SHARES), steps, n))
    found[0] = np.minimum.accumulate(np.vstack([[past[0] for past in pasts], values[:-1]]))
    added = np.full((n, steps), -np.inf)
    for step in range(steps):
        added[:, 1 : step + 1] = np.sort(values[:step].T, axis=1)
        ranks = np.rint(np.outer(_SHARES, last + step)).astype(np.int64) - starts
        before = np.take_along_axis(parts, ranks[:, :, np.newaxis] - np.arange(step + 1), axis=2)
        candidates = np.maximum(before, added[:, : step + 1])
        found[1:, step] = candidates.min(axis=2)
    return found


def _scores(values: Floats, pasts: Sequence[Sequence[float]]) -> tuple[Floats, Floats]:
    return _scored(values, *_at(pasts, lambda size: (0, *_ranks(size))))


def _scored(
    values: Floats, least: Floats, quarter: Floats, medians: Floats, three_quarters: Floats
) -> tuple[Floats, Floats]:
    """Return the scores of values and the medians, by the least earlier value and the quartiles."""
    floor = np.maximum(_LEAST_SPREAD * np.absolute(medians), 1e-12)
    low, middle, high, value = quarter, medians, three_quarters, values
    if (in_logarithms := (least > 0) & (values > 0)).any():
        floor = np.where(in_logarithms, math.log1p(_LEAST_SPREAD), floor)
        low, middle, high, value = (
            np.log(each, out=each.copy(), where=in_logarithms) for each in (low, middle, high, value)
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return (value - middle) / np.maximum((high - low) / _IQR_TO_SIGMA, floor), medians


def usual_steps(values: Floats, pasts: Sequence[array[float]], limit: float) -> int:
    """Return the number of next values of each series whose scores cannot reach a limit, and add these values.

    Quartiles move at most by one rank for each added value, so the present ones bound the later ones. A few values
    beyond these bounds are scored exactly. The answer may be too small: `past_scores` is exact.

    Args:
        values: The next values of n series, shape (steps, n).
        pasts: The earlier finite values of each series, ascending, as float64. Those of the returned steps are added.
        limit: A score, above 0.

    Returns:
        The number of steps.
    """
    steps = min(len(values), *(len(past) // _LEAST_GROWTH for past in pasts))
    if steps < 2:
        return 0
    values = values[:steps]
    first, *low_bounds, high_low, middle_high, _ = _at(
        pasts, lambda size: (0, *(at - steps for at in _ranks(size)), *_ranks(size + steps - 1))
    )
    _, middle_low, high_least = low_bounds
    finite = np.isfinite(values)
    in_logarithms = (first > 0) & ((values > 0) | ~finite).all(axis=0)
    floor = np.where((middle_low > 0) | (middle_high < 0), np.minimum(abs(middle_low), abs(middle_high)), 0)
    floor = np.where(in_logarithms, math.log1p(_LEAST_SPREAD), np.maximum(_LEAST_SPREAD * floor, 1e-12))
    low, high, below, above, newest = (
        np.log(each, out=each.copy(), where=in_logarithms & (each > 0))
        for each in (high_low, high_least, middle_low, middle_high, values)
    )
    with np.errstate(over="ignore", invalid="ignore"):
        distances = np.maximum(abs(newest - below), abs(newest - above))
        is_usual = distances / np.maximum((high - low) / _IQR_TO_SIGMA, floor) < limit
    is_usual &= in_logarithms | (first <= 0)
    doubtful = finite & ~is_usual

    def is_within(step: int) -> bool:
        few = np.flatnonzero(doubtful[step]).tolist()
        if len(few) * _FEW > len(pasts):
            return False
        grown = [sorted([*pasts[at], *values[:step, at][finite[:step, at]].tolist()]) for at in few]
        return bool((abs(_scores(values[step, few], grown)[0]) < limit).all())

    usual = next((step for step in np.flatnonzero(doubtful.any(axis=1)).tolist() if not is_within(step)), steps)
    _add(values[:usual], pasts)
    return usual


def _add(values: Floats, pasts: Sequence[array[float]]) -> None:
    """Add the finite values of some steps to each series."""
    for past, column, is_finite in zip(pasts, values.T, np.isfinite(values.T), strict=True):
        past.frombytes(column[is_finite].tobytes())
        np.frombuffer(past).sort(kind="stable")


def _ranks(size: int) -> list[int]:
    """Return the positions of the quartiles of a series, ascending."""
    return [round(share * (size - 1)) for share in _SHARES]


def _at(pasts: Sequence[Sequence[float]], positions: Callable[[int], Sequence[int]]) -> Floats:
    """Return the values of series at the positions for their sizes: a row a position."""
    cells = {size: itemgetter(*positions(size)) for size in {*map(len, pasts)}}
    return np.array([cells[len(past)](past) for past in pasts], np.float64).T
