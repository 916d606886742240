"""Snapshots: their ids, and trials that are opened at one."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensortrial
from support.limits import keep_index_files, set_limits
from support.runs import Job
from tensortrial.errors import ConfigurationError, SnapshotNotFound, StepNotYetAvailable

AGAIN: dict[str, Callable[[Any], Any]] = {
    "itself": lambda snapshot: snapshot,
    "pickled": lambda snapshot: pickle.loads(pickle.dumps(snapshot)),
    "by its id": str,
}


def seen(trial: tensortrial.Trial) -> list[Any]:
    """Return answers of a trial, from its steps, its values, its tables and its views."""
    queries = ["from steps", "select name, global_step, worker, value from scalars", "from collections"]
    return [
        trial.steps(),
        trial.steps(show_incomplete_steps=True),
        trial.tensor("x").values(),
        [sorted(trial.sql(query).fetchall(), key=repr) for query in queries],
        trial.loaded_all_steps,
        str(trial.snapshot),
    ]


@pytest.mark.parametrize(("workers", "way"), [(1, "itself"), (2, "pickled"), (2, "by its id")])
def test_a_snapshot_has_the_same_answers_while_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, way: str
) -> None:
    again = AGAIN[way]
    keep_index_files(monkeypatch)
    jobs = [Job(tmp_path, f"worker_{rank}", workers, flush_seconds=3600) for rank in range(workers)]
    states = []
    for number in range(3):
        for job in jobs:
            job.publish({"x": float(number)})
            with tensortrial.create_trial(tmp_path) as trial:
                states.append((trial.snapshot, seen(trial)))
    for job in jobs:
        job.close()
    assert len({str(snapshot) for snapshot, _ in states}) == len(states)
    for snapshot, answers in states:
        with tensortrial.create_trial(tmp_path, snapshot=again(snapshot)) as trial:
            assert seen(trial)[:4] == answers[:4]
            assert str(trial.snapshot) == str(snapshot)
            trial.refresh()
            assert seen(pickle.loads(pickle.dumps(trial)))[:4] == answers[:4]


def test_an_id_has_16_digits_and_is_that_of_the_same_files_in_any_process(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        empty = str(tensortrial.create_trial(tmp_path).snapshot)
        job.publish({"x": 1.0})
        first, second = (str(tensortrial.create_trial(tmp_path).snapshot) for _ in range(2))
        assert first == second
        assert len(first) == 16
        assert int(first, 16)
        trial = tensortrial.create_trial(tmp_path)
        job.publish({"x": 2.0})
        assert str(trial.snapshot) != first
        assert tensortrial.create_trial(tmp_path, snapshot=empty).steps(show_incomplete_steps=True) == []


def test_sql_and_exports_say_which_snapshot_they_saw(tmp_path: Path) -> None:
    with Job(tmp_path / "a") as job:
        job.step({"x": 1.0})
    trial, runs = tensortrial.create_trial(tmp_path / "a"), tensortrial.open_runs(tmp_path)
    name = str(trial.snapshot)
    assert dict(trial.sql("from steps").snapshots) == {"": name}
    assert dict(runs.sql("from steps").snapshots) == {"a": name}
    assert tensortrial.export(tmp_path / "a", tmp_path / "out.duckdb", progress=False).snapshots == {"a": name}


@pytest.mark.parametrize("name", ["", "zz", "0" * 15, "0" * 17, "A" * 16])
def test_a_text_that_is_no_id_of_a_snapshot_is_named(tmp_path: Path, name: str) -> None:
    with Job(tmp_path) as job:
        job.step({"x": 1.0})
    with pytest.raises(SnapshotNotFound, match=f"must be 16 hexadecimal digits, got '{name}'"):
        tensortrial.create_trial(tmp_path, snapshot=name)


def test_a_snapshot_by_an_id_lives_as_long_as_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_index_files(monkeypatch)
    with Job(tmp_path, flush_seconds=3600) as job:
        for number in range(3):
            job.publish({"x": float(number)})
            if number == 1:
                snapshot = tensortrial.create_trial(tmp_path).snapshot
    tensortrial.compact(tmp_path, delete_older_than=0)
    with pytest.raises(SnapshotNotFound, match="its files were compacted"):
        tensortrial.create_trial(tmp_path, snapshot=str(snapshot))
    # The snapshot itself knows its steps; their rows are in the compacted file.
    assert tensortrial.create_trial(tmp_path, snapshot=snapshot).tensor("x").values() == {0: 0.0, 1: 1.0}


@pytest.mark.parametrize("is_compacted_before", [True, False])
def test_a_snapshot_from_before_a_job_went_back_has_the_same_answers_until_its_files_are_compacted(
    tmp_path: Path, is_compacted_before: bool
) -> None:
    with tensortrial.Run(tmp_path, flush_seconds=3600) as run:
        for step in range(4):
            with run.step(step=step):
                run.log({"x": float(step)})
            run.flush()
        snapshot = tensortrial.create_trial(tmp_path).snapshot
    if is_compacted_before:
        tensortrial.compact(tmp_path, delete_older_than=0)
    with tensortrial.Run(tmp_path, resume=True) as run:
        run.resume_at(2)
        run.log({"x": 100.0}, step=2)
    trial = tensortrial.create_trial(tmp_path, snapshot=snapshot)
    if not is_compacted_before:
        assert trial.tensor("x").values() == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0}
        assert sorted(trial.sql("select value from scalars").fetchall()) == [(0.0,), (1.0,), (2.0,), (3.0,)]
        tensortrial.compact(tmp_path, delete_older_than=0)
        trial = tensortrial.create_trial(tmp_path, snapshot=snapshot)
    reads: list[Callable[[], Any]] = [
        lambda: trial.tensor("x").values(),
        lambda: trial.tensor("x").value(1),
        lambda: trial.sql("from tensors").fetchall(),
    ]
    for read in reads:
        with pytest.raises(SnapshotNotFound, match=f"went back .* of the snapshot {snapshot} "):
            read()


@pytest.mark.parametrize("saved_again", [1, 4])
def test_a_trial_that_does_not_refresh_never_mixes_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved_again: int
) -> None:
    keep_index_files(monkeypatch)
    with tensortrial.Run(tmp_path, flush_seconds=3600) as run:
        for step in range(4):
            run.log({"x": float(step)}, step=step)
            run.flush()
    trial, opened = tensortrial.create_trial(tmp_path), tensortrial.open_runs(tmp_path)
    reads: list[Callable[[], Any]] = [
        *(lambda step=step: {step: trial.tensor("x").value(step)} for step in range(4)),
        lambda: trial.tensor("x").values(),
        lambda: dict(trial.sql("select global_step, value from scalars").fetchall()),
        lambda: dict(opened.sql("select global_step, value from scalars").fetchall()),
    ]
    with tensortrial.no_refresh(trial):
        assert trial.steps() == [0, 1, 2, 3]
        with tensortrial.Run(tmp_path, resume=True, flush_seconds=3600) as run:
            run.resume_at(2)
            for step in range(2, 2 + saved_again):
                run.log({"x": 100.0 + step}, step=step)
                run.flush()
        tensortrial.compact(tmp_path, delete_older_than=0)
        refused = 0
        for read in reads:
            try:
                assert all(value == step for step, value in read().items())
            except SnapshotNotFound:
                refused += 1
        assert refused >= 3
    trial.refresh()
    assert trial.steps() == list(range(2 + saved_again))
    opened.refresh()
    now = {0: 0.0, 1: 1.0, **{step: 100.0 + step for step in range(2, 2 + saved_again)}}
    assert [{**read()} for read in reads[-3:]] == [now] * 3


def test_a_snapshot_of_another_run_or_range_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Job(tmp_path / name) as job:
            job.step({"x": 1.0})
    snapshot = tensortrial.create_trial(tmp_path / "a").snapshot
    with pytest.raises(SnapshotNotFound, match="of another run"):
        tensortrial.create_trial(tmp_path / "b", snapshot=snapshot)
    with pytest.raises(ConfigurationError, match="range_steps"):
        tensortrial.create_trial(tmp_path / "a", range_steps=(0, 1), snapshot=snapshot)


def test_a_snapshot_of_many_workers_is_found_by_its_id_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_index_files(monkeypatch)
    jobs = [Job(tmp_path, f"worker_{rank}", 32, flush_seconds=3600) for rank in range(32)]
    names = []
    for number in range(2):
        for job in jobs:
            job.publish({"x": float(number)})
        with tensortrial.create_trial(tmp_path) as trial:
            names.append(str(trial.snapshot))
    for job in jobs:
        job.close()
    for name, last in zip(names, (0, 1), strict=True):
        with tensortrial.create_trial(tmp_path, snapshot=name) as trial:
            assert trial.steps()[-1] == last
    with pytest.raises(SnapshotNotFound):
        tensortrial.create_trial(tmp_path, snapshot="f" * 16)


@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_a_snapshot_of_workers_that_are_far_apart_is_found_by_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    keep_index_files(monkeypatch)
    jobs = [Job(tmp_path, f"worker_{rank}", 4, flush_seconds=3600) for rank in range(4)]
    counts = [1, 1 + ahead, 1, 1 + 2 * ahead]
    for job, count in zip(jobs, counts, strict=True):
        flush(job, count)
    with tensortrial.create_trial(tmp_path) as trial:
        name, rows = str(trial.snapshot), trial.sql("select count(*) from tensors").fetchall()
    for job, count in zip(jobs, counts, strict=True):
        flush(job, 12 - count)
        job.close()
    with tensortrial.create_trial(tmp_path, snapshot=name) as trial:
        assert trial.sql("select count(*) from tensors").fetchall() == rows


def test_a_snapshot_between_two_compactions_is_found_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_index_files(monkeypatch)
    set_limits(monkeypatch, flushes_of_a_block=2)
    names = dict[str, list[int]]()
    with Job(tmp_path, flush_seconds=3600) as job:
        for _ in range(7):
            flush(job, 1)
            for _ in range(2):
                with tensortrial.create_trial(tmp_path) as trial:
                    names[str(trial.snapshot)] = trial.steps()
                tensortrial.compact(tmp_path)
    assert len(names) > 7
    for name, steps in names.items():
        with tensortrial.create_trial(tmp_path, snapshot=name) as trial:
            assert trial.steps() == steps
            assert trial.tensor("x").values() == {step: float(step) for step in steps}


def flush(job: Job, count: int) -> None:
    for _ in range(count):
        job.publish({"x": float(job.next_global_step)})


def test_a_trial_of_a_snapshot_does_not_wait_for_steps(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        job.publish({"x": 1.0})
        trial = tensortrial.create_trial(tmp_path, snapshot=tensortrial.create_trial(tmp_path).snapshot)
        with pytest.raises(StepNotYetAvailable, match="one snapshot"):
            trial.wait_for_steps([5])
