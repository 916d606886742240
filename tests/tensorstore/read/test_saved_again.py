"""A step that a worker has saved again: SQL, the API, rules and an export have one row for a tensor, the last one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import tensortrial
from support.limits import keep_index_files
from support.runs import EVAL, TRAIN, Job
from tensortrial.exports import export
from tensortrial.maintenance.compaction import compact
from tensortrial.mode import ModeKeys
from tensortrial.read.trial import Trial, run_reader_of
from tensortrial.rules.step_columns import read_columns

STEPS = [("TRAIN", 0, 0, 2), ("TRAIN", 1, 1, 2)]
"""Mode, step of the mode, global step and number of tensors of the first two steps."""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job that has saved three steps of two tensors in one flush."""
    keep_index_files(monkeypatch)
    job = Job(tmp_path / "run", flush_seconds=3600)
    for _ in range(3):
        job.step({"w": np.zeros(4), "x": 0.0}, TRAIN)
    job.flush()
    return job


def again(job: Job, mode: ModeKeys, mode_step: int, values: dict[str, Any]) -> None:
    """Save the last step again, as a process does whose run was taken over."""
    job.next_global_step -= 1
    job.next_mode_steps[mode] = mode_step
    job.publish(values, mode)


def check(trial: Trial, steps: list[tuple[Any, ...]], tensors: list[tuple[Any, ...]], target: Path) -> None:
    """Check the steps of a run, and its tensors: global step, name, and first element."""
    assert trial.sql("select mode, mode_step, global_step, num_tensors from steps order by 3").fetchall() == steps
    assert trial.sql("select global_step, name from tensors order by all").fetchall() == [row[:2] for row in tensors]
    by_api = trial.values(trial.tensor_names(), trial.steps())
    found = [(step, name, value.flat[0]) for name, of in by_api.items() for step, value in of.items()]
    assert sorted(found) == tensors
    raw = trial.sql("select global_step, name, value from tensor_values order by all").fetchall()
    assert [(*key, np.frombuffer(value)[0]) for *key, value in raw] == [row for row in tensors if row[1] == "w"]
    for step in trial.steps():
        columns, counts = run_reader_of(trial).read_rows(
            lambda cache, saved, step=step: read_columns(cache, saved, step, step)  # type: ignore[misc]
        )
        names = columns.cells("name", np.flatnonzero(counts))
        assert sorted(names) == [name for at, name, _ in tensors if at == step]
    export(trial, f"duckdb:{target}", tables=["steps", "tensors"], progress=False)
    with duckdb.connect(str(target)) as database:
        exported = database.sql("select mode, mode_step, global_step, num_tensors from steps order by 3").fetchall()
        assert exported == steps
        exported = database.sql("select global_step, name from tensors order by all").fetchall()
        assert exported == [row[:2] for row in tensors]


@pytest.mark.parametrize(
    ("mode", "values", "step", "tensors"),
    [
        (TRAIN, {"x": 1.0, "y": 2.0}, ("TRAIN", 2, 2, 3), [(2, "w", 0), (2, "x", 1), (2, "y", 2)]),
        (EVAL, {"x": 1.0, "y": 2.0}, ("EVAL", 0, 2, 2), [(2, "x", 1), (2, "y", 2)]),
        (EVAL, {"w": np.ones(4)}, ("EVAL", 0, 2, 1), [(2, "w", 1)]),
        (TRAIN, {"w": np.ones(4)}, ("TRAIN", 3, 2, 1), [(2, "w", 1)]),
    ],
)
def test_a_step_that_was_saved_again_has_one_row_for_each_tensor(
    tmp_path: Path, job: Job, mode: ModeKeys, values: dict[str, Any], step: Any, tensors: list[Any]
) -> None:
    follower, target = tensortrial.create_trial(job.storage.url), tmp_path / "target.duckdb"
    first = [(step, name, 0) for step in range(3) for name in "wx"]
    check(follower, [*STEPS, ("TRAIN", 2, 2, 2)], first, target)
    again(job, mode, step[1], values)
    expected = [*STEPS, step], [*first[:4], *tensors]
    check(follower, *expected, target)
    job.close()
    assert not tensortrial.verify(job.storage.url).damaged
    check(tensortrial.create_trial(job.storage.url), *expected, target)
    compact(job.storage.url, delete_older_than=0)
    assert not tensortrial.verify(job.storage.url).damaged
    check(follower, *expected, target)
    check(tensortrial.create_trial(job.storage.url), *expected, tmp_path / "another.duckdb")
