"""Thinning: SQL that draws a range of steps of a curve as one point, and a choice of evenly distributed steps."""

from __future__ import annotations

from collections.abc import Sequence

# Values are scaled by this power of two, which changes no digit, so that their sum does not overflow.
_SCALE = 2.0**-40


def thinned(rows: str, key: str) -> str:
    """Return SQL for rows with the columns `bucket`, at most about `$points` in each curve, and `last_step`.

    A curve with few steps has a point for each, even if they are far apart. Other curves have ranges of steps whose
    width is a power of two, so that the points of a growing curve do not move.

    Args:
        rows: A SELECT with the columns `step`, `worker`, and those of `key`.
        key: The columns that tell curves apart, with commas between them.
    """
    # Without `materialized`, DuckDB reads the files twice, with some MB for each file at the same time.
    return f"""
        with saved as materialized ({rows})
        select saved.*, last_step, step // width as bucket from saved
        join (
            select {key}, max(step) as last_step, case
                when count(*) <= $points * count(distinct worker) then 1
                else pow(2, greatest(0, ceil(log2((max(step)::double - min(step) + 1) / $points))))::bigint
            end as width
            from saved group by {key}
        ) using ({key})
    """


def finite_mean(value: str) -> str:
    """Return SQL for the mean of the finite values of a group: null if there are none."""
    finite = f"filter (where isfinite({value}))"
    scaled = f"avg({value} * {_SCALE!r}) {finite} / {_SCALE!r}"
    bounded = f"greatest(min({value}) {finite}, least(max({value}) {finite}, {scaled}))"
    return f"case when isfinite(avg({value}) {finite}) then avg({value}) {finite} else {bounded} end"


def evenly(steps: Sequence[int], most: int) -> list[int]:
    """Return evenly distributed steps, at most `most`, including the first and, if more than one, the last."""
    count = min(most, len(steps))
    return [steps[i * (len(steps) - 1) // max(count - 1, 1)] for i in range(count)]
