"""A worker of several that closes before its first step: readers do not wait for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensortrial import Run, create_trial
from tensortrial.errors import RunExists, RunNotFound


class Workers:
    """Makes the runs of a job of two workers, which all save."""

    def __init__(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._out, self._monkeypatch = out, monkeypatch
        monkeypatch.setenv("WORLD_SIZE", "2")

    def __call__(self, rank: int, **options: Any) -> Run:
        self._monkeypatch.setenv("RANK", str(rank))
        return Run(self._out, include_workers="all", **options)


@pytest.fixture
def job(out: str, monkeypatch: pytest.MonkeyPatch) -> Workers:
    return Workers(out, monkeypatch)


def log(run: Run, *steps: int) -> None:
    for step in steps:
        run.log({"x": step}, step=step)
    run.close()


def steps_of(out: str) -> list[int]:
    trial = create_trial(out)
    assert trial.loaded_all_steps
    assert trial.late_workers() == []
    return trial.steps()


@pytest.mark.parametrize("on_exists", ["fail", "resume", "restart_crashed"])
@pytest.mark.parametrize("first", [0, 1])
def test_the_steps_of_the_others_are_complete(job: Workers, out: str, first: int, on_exists: str) -> None:
    pytest.importorskip("psutil")
    runs = [job(rank, on_exists=on_exists, system_metrics=60) for rank in range(2)]
    for rank in (first, 1 - first):
        log(runs[rank], *(range(3) if rank == 0 else ()))
    assert steps_of(out) == [0, 1, 2]
    samples = create_trial(f"{out}/system")
    assert samples.workers() == ["worker_0", "worker_1"]
    of_steps = "select distinct worker from scalars where name = 'system/global_step'"
    assert samples.sql(of_steps).fetchall() == [("worker_0",)]


def test_a_later_session_is_complete_without_a_step_of_a_worker(job: Workers, out: str) -> None:
    for resume in (False, True):
        runs = [job(rank, resume=resume) for rank in range(2)]
        log(runs[1], *(() if resume else (0, 1)))
        log(runs[0], *((2, 3) if resume else (0, 1)))
    assert steps_of(out) == [0, 1, 2, 3]
    assert create_trial(out).sql("select count(*) from steps where worker = 'worker_1'").fetchall() == [(2,)]


def test_a_job_without_a_step_takes_nothing_from_an_earlier_one(job: Workers, out: str) -> None:
    for rank in range(2):
        log(job(rank), 0, 1)
    for end in Path(out, "end").iterdir():
        end.unlink()  # as after a crash
    runs = [job(rank, on_exists="restart_crashed", force=True) for rank in range(2)]
    for run in runs:
        run.close()
    trial = create_trial(out)
    trial.mark_ended()
    assert trial.steps() == [0, 1]
    assert trial.tensor("x").value(1) == 1


def test_a_job_of_one_worker_leaves_nothing_behind(out: str) -> None:
    Run(out, include_workers="all").close()
    with pytest.raises(RunNotFound):
        create_trial(out)


def test_a_job_of_several_workers_leaves_nothing_behind(job: Workers, out: str) -> None:
    for run in [job(rank) for rank in range(2)]:
        run.close()
    with pytest.raises(RunNotFound):
        create_trial(out)
    for rank in range(2):
        log(job(rank), 0, 1)
    assert steps_of(out) == [0, 1]


def test_a_parent_whose_children_have_written_the_run_says_nothing(
    job: Workers, out: str, caplog: pytest.LogCaptureFixture
) -> None:
    parent = job(0)
    for rank in range(2):
        log(job(rank), 0, 1)
    parent.close()
    assert caplog.records == []
    assert steps_of(out) == [0, 1]


def test_a_parent_that_closes_before_its_children_begin_is_named(job: Workers, out: str) -> None:
    job(0).close()
    with pytest.raises(RunExists, match=r"resume=True.*worker_0 ended before its first step"):
        job(0)
    runs = [job(rank, resume=True) for rank in range(2)]
    for run in runs:
        log(run, 0, 1)
    assert steps_of(out) == [0, 1]


def test_a_worker_whose_program_fails_before_its_first_step_leaves_nothing_behind(job: Workers, out: str) -> None:
    with pytest.raises(ValueError, match="set-up"), job(0):
        raise ValueError("set-up")
    for rank in range(2):
        log(job(rank), 0, 1)
    assert steps_of(out) == [0, 1]
