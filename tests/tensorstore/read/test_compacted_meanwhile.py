"""Readers of a run that is compacted that deletes at once while they list, verify and read it: no row is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from night.compactions import query_while_compacting

import tensortrial
from support.fleeing import Fleeing, NeverEnds
from support.internals import index_paths
from support.limits import set_limits
from support.runs import GLOBAL, Job
from tensortrial.errors import CorruptFile, QueryError, TensorTrialError
from tensortrial.format.record import Step
from tensortrial.maintenance.compaction import compact
from tensortrial.pages.open_run import OpenRun
from tensortrial.read import run_reader
from tensortrial.read.runs import Runs
from tensortrial.read.trial import Trial, run_reader_of
from tensortrial.storage.base import Paths, Tails
from tensortrial.storage.local import LocalStorage

pytestmark = pytest.mark.usefixtures("nothing_is_small")

VIEWS = ["tensors", "scalars", "tensor_values"]


class Interrupted(LocalStorage):
    """A storage in which something else happens right after the next listing, or before the next files are read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.after_listing: list[Callable[[], Any]] = []
        self.before_reading: list[Callable[[], Any]] = []

    def _list_after(self, folder: str, after: str) -> Paths:
        paths = super()._list_after(folder, after)
        if self.after_listing and paths:
            self.after_listing.pop(0)()
        return paths

    def read_tails(self, paths: Sequence[str], length: int) -> Tails:
        self._interrupt(paths)
        return super().read_tails(paths, length)

    def size(self, path: str) -> int:
        self._interrupt([path])
        return super().size(path)

    def _interrupt(self, paths: Sequence[str]) -> None:
        if self.before_reading and any(path.startswith(("index/", "tensors/")) for path in paths):
            self.before_reading.pop(0)()


def flush(job: Job, count: int) -> None:
    for _ in range(count):
        step = job.next_global_step
        job.publish({"w": np.arange(4.0) + step, "loss": step / 2})


def write(folder: Path, flushes: int) -> None:
    with Job(folder, flush_seconds=3600) as job:
        flush(job, flushes)


def opened(storage: LocalStorage) -> Trial:
    return Trial(storage, tensortrial.create_trial(storage.url).info, "t")


@pytest.mark.parametrize("view", VIEWS)
def test_sql_on_a_run_that_is_compacted_after_it_was_listed(tmp_path: Path, view: str) -> None:
    write(tmp_path, 6)
    storage = Interrupted(tmp_path)
    trial = opened(storage)
    storage.before_reading.append(lambda: compact(tmp_path, delete_older_than=0))
    ((count,),) = trial.sql(f"select count(distinct global_step) from {view}").fetchall()
    assert (count, storage.before_reading) == (6, [])
    assert not trial.damaged
    assert trial.values(["w"])["w"].keys() == set(range(6))


TAKEN = {
    "fetchall": lambda answer: len(answer.fetchall()),
    "iterator": lambda answer: len(list(answer)),
    "df": lambda answer: pytest.importorskip("pandas") and len(answer.df()),
    "arrow": lambda answer: len(answer.arrow().read_all()),
    "to_arrow_table": lambda answer: len(answer.to_arrow_table()),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("taken", TAKEN)
def test_rows_that_are_taken_after_the_files_were_compacted(tmp_path: Path, view: str, taken: str) -> None:
    write(tmp_path, 6)
    trial = tensortrial.create_trial(tmp_path)
    answer = trial.sql(f"select global_step from {view} where name in ('w', 'loss')")
    compact(tmp_path, delete_older_than=0)
    # Another query finds what replaced the files, and makes other views again.
    assert trial.sql("select count(*) from steps").fetchall() == [(6,)]
    assert TAKEN[taken](answer) == (12 if view != "scalars" and view != "tensor_values" else 6)
    assert not trial.damaged


def test_a_file_that_is_deleted_and_not_compacted_is_named(tmp_path: Path) -> None:
    write(tmp_path, 3)
    answer = tensortrial.create_trial(tmp_path).sql("select * from tensors")
    path = next(tmp_path.glob("index/*/*/00000001.parquet"))
    path.unlink()
    with pytest.raises(QueryError, match=path.name):
        answer.fetchall()


def test_files_that_are_compacted_again_before_they_are_listed_again(tmp_path: Path) -> None:
    """The second time, the files are gone that the second listing has shown for the first time."""
    with Job(tmp_path, flush_seconds=3600, steps_per_directory=5) as job:
        flush(job, 6)
        storage = Interrupted(tmp_path)

        def grow_and_compact() -> None:
            flush(job, 5)
            compact(tmp_path, delete_older_than=0)

        storage.before_reading += [grow_and_compact, grow_and_compact]
        trial = opened(storage)
        assert trial.steps(show_incomplete_steps=True) == [*range(16)]
        assert not storage.before_reading
        assert not trial.damaged


READS: dict[str, Callable[[Trial, Path], object]] = {
    "value": lambda trial, _: trial.tensor("w").value(0),
    "values": lambda trial, _: trial.tensor("loss").values(),
    "sql": lambda trial, _: trial.sql("select * from tensors").fetchall(),
    "tensor_values": lambda trial, _: trial.sql("select * from tensor_values").fetchall(),
    "export": lambda trial, target: tensortrial.export(trial, f"parquet:{target}", progress=False),
    "compare": lambda trial, _: tensortrial.compare(trial, trial),
    "tiles": lambda trial, _: OpenRun(trial).grid("value", "GLOBAL", "", (None, None), 100),
    "zoomed": lambda trial, _: OpenRun(trial).grid("value", "GLOBAL", "", (1, 2), 100),
}


@pytest.mark.parametrize("read", READS)
def test_files_that_are_compacted_again_after_each_listing_are_an_error_that_names_one(
    tmp_path: Path, read: str
) -> None:
    write(tmp_path / "run", 1)
    storage = Fleeing(tmp_path / "run")
    trial = opened(storage)
    storage.flees = True
    with pytest.raises(TensorTrialError, match=r"index/worker=worker_0/step=000000000000/00000000[-\d]*\.parquet"):
        READS[read](trial, tmp_path / "target")
    storage.flees = False
    assert trial.tensor("loss").values() == {0: 0.0}
    assert trial.sql("select count(*) from tensors").fetchall() == [(2,)]


def test_a_retry_that_never_ends_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect is planted, to show that the other tests would find it."""

    def repeated(work: Callable[[], object], remade: Callable[[], object]) -> object:
        while True:
            try:
                return work()
            except (CorruptFile, FileNotFoundError):
                remade()

    monkeypatch.setattr(run_reader, "repeated", repeated)
    write(tmp_path, 1)
    storage = Fleeing(tmp_path)
    trial = opened(storage)
    storage.flees = True
    with pytest.raises(NeverEnds):
        trial.tensor("loss").values()


def test_files_that_are_compacted_while_their_footers_are_read(tmp_path: Path) -> None:
    """The first ones were read, the others are gone: the compacted file replaces both."""

    class Halved(Interrupted):
        def read_tails(self, paths: Sequence[str], length: int) -> Tails:
            half = len(paths) // 2
            first = [*super().read_tails(paths[:half], length)]
            return [*first, *super().read_tails(paths[half:], length)]

    write(tmp_path, 6)
    storage = Halved(tmp_path)
    storage.before_reading += [lambda: None, lambda: compact(tmp_path, delete_older_than=0)]
    trial = opened(storage)
    assert trial.sql("select count(*), count(distinct global_step) from tensors").fetchall() == [(12, 6)]
    assert trial.sql("select count(*) from steps").fetchall() == [(6,)]
    assert trial.tensor("loss").values() == {step: step / 2 for step in range(6)}
    assert not storage.before_reading
    assert not trial.damaged


def test_files_that_are_compacted_twice_before_the_next_refresh(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        flush(job, 3)
        trial = tensortrial.create_trial(tmp_path)
        flush(job, 3)
    known = "select count(*) from scalars where global_step < 3"
    with tensortrial.no_refresh(trial):
        compact(tmp_path, delete_older_than=0)
        assert trial.sql(known).fetchall() == [(3,)]
        with Job(tmp_path, resume=True, flush_seconds=3600) as job:
            flush(job, 3)
        compact(tmp_path, delete_older_than=0)
        assert trial.sql(known).fetchall() == [(3,)]
    assert trial.tensor("loss").values() == {step: step / 2 for step in range(9)}
    assert trial.sql("select count(*), count(distinct global_step) from tensors").fetchall() == [(18, 9)]
    assert trial.sql("select count(*) from steps").fetchall() == [(9,)]
    assert not trial.damaged


def test_a_step_that_was_saved_again_and_compacted_before_the_next_refresh(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        flush(job, 3)
        trial = tensortrial.create_trial(tmp_path)
        job.put(Step(GLOBAL, 1, 1), {"w": np.arange(4.0), "loss": 100.0}, closes=True)
    rows, losses = "select count(*) from tensors", {0: 0.0, 1: 100.0, 2: 1.0}
    with tensortrial.no_refresh(trial):
        compact(tmp_path, delete_older_than=0)
        assert trial.sql(rows).fetchall() == [(6,)]
        assert trial.tensor("loss").values() == losses
        assert [*map(len, run_reader_of(trial).rows_at_step(1).values())] == [1, 1]
    assert trial.sql(rows).fetchall() == [(6,)]
    assert trial.sql("select global_step from steps order by 1").fetchall() == [(0,), (1,), (2,)]
    assert trial.tensor("loss").values() == losses


@pytest.mark.parametrize("ended", [False, True])
def test_an_open_trial_turns_to_compacted_files_while_the_superseded_ones_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    job = Job(tmp_path, flush_seconds=3600, steps_per_directory=4)
    flush(job, 10)
    trial = tensortrial.create_trial(tmp_path)
    if ended:
        job.close()
    compact(tmp_path)
    assert trial.steps(show_incomplete_steps=True) == [*range(10)]
    assert len(index_paths(trial)) == 10
    with monkeypatch.context() as patch:
        set_limits(patch, seconds_until_all_files_are_listed=0)
        trial.refresh()
    assert len(index_paths(trial)) < 10
    compact(tmp_path, delete_older_than=0)
    assert all((tmp_path / path).exists() for path in index_paths(trial))
    assert trial.sql("select count(*) from scalars").fetchall() == [(10,)]
    assert trial.snapshot is trial.snapshot
    job.close()


def test_names_outside_the_range_of_a_trial_stay_unknown_when_the_run_is_compacted(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        flush(job, 1)
        trial = tensortrial.create_trial(tmp_path, range_steps=(0, 2))
        flush(job, 1)
        job.step({"late": 1.0})
    compact(tmp_path, delete_older_than=0)
    assert trial.steps() == [0, 1]
    assert trial.tensor_names() == ["loss", "w"]


@pytest.mark.parametrize("view", VIEWS)
def test_many_runs_that_are_compacted_while_they_are_opened(tmp_path: Path, view: str) -> None:
    write(tmp_path, 6)
    storage = Interrupted(tmp_path)
    storage.after_listing.append(lambda: compact(tmp_path, delete_older_than=0))
    runs = Runs([storage])
    assert runs.sql(f"select count(distinct global_step) from {view}").fetchall() == [(6,)]
    assert not runs.damaged


@pytest.mark.parametrize("view", [*VIEWS, "steps"])
def test_many_runs_that_are_compacted_after_they_were_opened(tmp_path: Path, view: str) -> None:
    write(tmp_path, 6)
    runs = tensortrial.open_runs(tmp_path)
    compact(tmp_path, delete_older_than=0)
    assert runs.sql(f"select count(distinct global_step) from {view}").fetchall() == [(6,)]


def test_many_runs_pass_over_a_damaged_compacted_file(tmp_path: Path) -> None:
    write(tmp_path, 6)
    wide = tmp_path / "index/worker=worker_0/step=000000000000/00000000-00000005.parquet"
    wide.write_bytes(b"PAR1")
    runs = tensortrial.open_runs(tmp_path)
    assert runs.sql("select count(distinct global_step) from tensors").fetchall() == [(6,)]
    assert list(runs.damaged) == [str(wide)]


@pytest.mark.slow
def test_every_query_while_another_process_compacts_and_deletes(tmp_path: Path) -> None:
    query_while_compacting(tmp_path / "run", [2] * 15, steps_per_directory=4)
