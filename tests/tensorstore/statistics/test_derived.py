"""Statistics that follow from saved ones are those that would be computed, in Python and in SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.runs import Job
from tensortrial.errors import TensorUnavailableForStep
from tensortrial.statistics.definitions import STATISTICS
from tensortrial.statistics.derived import DERIVATIONS, Derivation, derive, expression
from tensortrial.statistics.single import statistic, statistics

VALUES: dict[str, Any] = {
    "plain": np.linspace(-3, 2, 12, dtype=np.float32).reshape(3, 4),
    "positive": np.arange(1, 9, dtype=np.int64),
    "one": np.array([-2.5]),
    "nan": np.array([1.0, np.nan]),
    "infinite": np.array([1.0, np.inf, -np.inf]),
    "large": np.array([1e200, -1e200]),
}


def saved_of(derivation: Derivation) -> tuple[str, ...]:
    return tuple(name for name in derivation.needs if name != "size")


@pytest.mark.parametrize("derivation", DERIVATIONS, ids=lambda each: f"{each.name}-{'-'.join(each.needs)}")
def test_a_derived_statistic_equals_the_computed_one(tmp_path: Path, derivation: Derivation) -> None:
    with Job(tmp_path) as job:
        job.step(VALUES, raw=False, statistics=saved_of(derivation))
    trial = tensortrial.create_trial(tmp_path)
    in_sql = dict(trial.sql(f"select name, {expression(derivation.name)} from tensors").fetchall())
    for name, value in VALUES.items():
        expected = statistic(value, derivation.name)
        if name == "large" and not np.isfinite(expected or 0):
            continue
        found = derive(derivation.name, statistics(value, saved_of(derivation)), value.shape)
        assert found == pytest.approx(expected, rel=1e-9, nan_ok=True) or not np.isfinite(found or 0), name
        assert in_sql[name] == pytest.approx(found, rel=1e-12, nan_ok=True), name
        assert trial.tensor(name).reduction_value(0, derivation.name) == pytest.approx(found, nan_ok=True)


@pytest.mark.parametrize("saved", ["min", "max"])
def test_the_largest_magnitude_does_not_follow_from_the_minimum_or_maximum_alone(tmp_path: Path, saved: str) -> None:
    with Job(tmp_path) as job:
        job.step(VALUES, raw=False, statistics=(saved,))
    trial = tensortrial.create_trial(tmp_path)
    assert trial.sql(f"select count({expression('abs_max')}) from tensors").fetchall() == [(0,)]


def test_derivations_chain() -> None:
    assert derive("l2", {"std": 2.0, "sum": 4.0}, (4,)) == pytest.approx(np.sqrt(4 * (4 + 1)))
    assert derive("abs_mean", {"abs_sum": 6.0}, (3, 2)) == 1.0


def test_a_statistic_that_does_not_follow_is_not_derived(tmp_path: Path) -> None:
    assert derive("variance", {"l2": 2.0, "mean": 1.0}, (4,)) is None
    assert derive("mean", {"sum": 2.0}, (-1,)) is None  # a shape that is not known
    assert derive("mean", {"sum": float("nan")}, (0,)) is None
    assert all(derive(name, {}, (2,)) is None for name in STATISTICS)
    with Job(tmp_path) as job:
        job.step({"w": np.ones(3)}, raw=False, statistics=("l2",))
    with pytest.raises(TensorUnavailableForStep, match="neither its mean nor its raw value was saved"):
        tensortrial.create_trial(tmp_path).tensor("w").reduction_value(0, "mean")


def test_a_division_by_a_size_that_sql_does_not_know_is_null(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        job.step({"empty": np.zeros((0, 3))}, raw=False, statistics=("l1",))
    trial = tensortrial.create_trial(tmp_path)
    assert trial.sql(f"select {expression('abs_mean')} from tensors").fetchall() == [(None,)]
