"""Quantiles of tensors are read from sketches, and from raw values where none were saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.runs import Job
from tensortrial.errors import ConfigurationError, TensorUnavailableForStep
from tensortrial.maintenance.compaction import compact
from tensortrial.statistics.sketch import quantile, sketch_of

VALUES = np.random.default_rng(0).standard_normal((300, 70)).astype(np.float32)


def test_a_quantile_is_the_same_from_a_sketch_and_from_the_raw_value(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        job.step({"sketched": VALUES}, raw=False, sketch=True)
        job.step({"raw": VALUES})
    trial, expected = tensortrial.create_trial(tmp_path), sketch_of(VALUES)
    assert expected is not None
    for q in (0, 0.05, 0.5, 0.999, 1):
        found = trial.tensor("sketched").quantile(0, q)
        assert found.shape == ()
        assert found == trial.tensor("raw").quantile(1, q) == quantile(expected, q)


def test_a_quantile_is_of_one_worker(tmp_path: Path) -> None:
    jobs = [Job(tmp_path, f"worker_{number}", 2) for number in range(2)]
    for number, job in enumerate(jobs):
        job.step({"w": np.full(3, number + 1.0), "other": VALUES}, raw=False, sketch=True)
        job.close()
    tensor = tensortrial.create_trial(tmp_path).tensor("w")
    assert [tensor.quantile(0, 0.5, worker=worker) for worker in (None, "worker_1")] == [1.0, 2.0]


def test_sketches_survive_compaction(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=0) as job:
        for step in range(3):
            job.publish({"w": VALUES * step, "l": 1.0}, raw=False, sketch=True)
    before = [tensortrial.create_trial(tmp_path).tensor("w").quantile(step, 0.75) for step in range(3)]
    compact(tmp_path, delete_older_than=0)
    assert [tensortrial.create_trial(tmp_path).tensor("w").quantile(step, 0.75) for step in range(3)] == before


def test_what_has_neither_sketch_nor_value_has_no_quantile(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        job.step(
            {"l2": ({"statistics": ("l2",), "raw": False}, VALUES), "z": np.array([1j, 2]), "w": VALUES}, sketch=True
        )
    trial = tensortrial.create_trial(tmp_path)
    with pytest.raises(TensorUnavailableForStep, match="neither its quantiles nor its raw value was saved"):
        trial.tensor("l2").quantile(0, 0.5)
    with pytest.raises(TensorUnavailableForStep, match="dtype complex128 has no quantiles"):
        trial.tensor("z").quantile(0, 0.5)
    with pytest.raises(ConfigurationError, match="q must be a number from 0 to 1"):
        trial.tensor("w").quantile(0, 2)
