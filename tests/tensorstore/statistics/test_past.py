"""Scores of values by their own past, of many steps at once and of one after another."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

from tensortrial.statistics.past import past_scores, scores_of_steps
from tensortrial.statistics.sums import Floats


def some_values(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Floats:
    """Return values that are positive, of both signs, or often equal."""
    values = rng.normal(0, 1, shape)
    return {"positive": np.exp(values), "of both signs": values, "equal": np.round(2 * values) / 2}[kind]


@pytest.mark.parametrize("kind", ["positive", "of both signs", "equal"])
@pytest.mark.parametrize("steps", [1, 2, 32])
@pytest.mark.parametrize("series", [1, 3, 1030])
@pytest.mark.parametrize("has_nan", [False, True])
def test_steps_that_are_scored_together_have_the_scores_of_each_by_itself(
    kind: str, steps: int, series: int, has_nan: bool
) -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(10, 40, series)
    together = [array("d", np.sort(some_values(rng, kind, (size,))).tolist()) for size in sizes.tolist()]
    one_by_one = [past[:] for past in together]
    values = some_values(rng, kind, (steps, series))
    if has_nan:
        values[0, 0] = np.nan
    scores, medians = scores_of_steps(values, together, 10)
    for step, newest in enumerate(values):
        expected = past_scores(newest, one_by_one, 10)
        np.testing.assert_array_equal((scores[step], medians[step]), expected)
    assert together == one_by_one


def test_a_series_that_is_too_short_has_no_score_until_it_is_long_enough() -> None:
    pasts = [array("d", [1.0, 2.0, 3.0])]
    scores, _ = scores_of_steps(np.ones((4, 1)), pasts, 5)
    assert np.isnan(scores[:, 0]).tolist() == [True, True, False, False]
    assert list(pasts[0]) == [1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 3.0]
