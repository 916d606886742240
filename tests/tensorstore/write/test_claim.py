"""Who may write to a run, and from which step on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.runs import CREATED, EVAL, TRAIN, Job
from tensortrial.errors import FileError, NotARun, RunExists, UnknownFormat, WorkerClaimed
from tensortrial.format.checksum import document_bytes
from tensortrial.format.schema import RunInfo, WorkerInfo, collections_path
from tensortrial.storage.local import LocalStorage
from tensortrial.storage.open import open_storage
from tensortrial.write.claim import Resumption, check_out_dir, claim, next_flush


def test_an_empty_folder_may_be_written_to(tmp_path: Path) -> None:
    check_out_dir(open_storage(tmp_path), "worker_0", 1)


@pytest.mark.parametrize("closed", [True, False])
def test_a_run_is_not_written_over(tmp_path: Path, closed: bool) -> None:
    job = Job(tmp_path)
    job.publish({"a": 1.0})
    if closed:
        job.close()
    for worker, num_workers in (("worker_0", 1), ("worker_1", 2)):
        with pytest.raises(RunExists, match="resume=True"):
            check_out_dir(open_storage(tmp_path), worker, num_workers)
    with pytest.raises(FileExistsError, match="another out_dir"):
        Job(tmp_path, "worker_1", 2)
    job.close()


def test_workers_of_one_job_join_each_other(tmp_path: Path) -> None:
    jobs = [Job(tmp_path, f"worker_{rank}", 3) for rank in range(3)]
    check_out_dir(open_storage(tmp_path), "worker_3", 3)
    for job in jobs:
        job.step({"a": 1.0})
        job.close()
    assert tensortrial.create_trial(tmp_path).workers() == ["worker_0", "worker_1", "worker_2"]


def test_the_loser_of_a_race_for_a_name_gets_worker_claimed(tmp_path: Path) -> None:
    """Both checked before either wrote."""
    storage, info = open_storage(tmp_path), WorkerInfo("worker_0", 1, CREATED, [])
    storage.create(collections_path("worker_0"), info.to_bytes())
    with pytest.raises(WorkerClaimed, match="worker_0"):
        claim(storage, RunInfo(CREATED, id="a"), info)


def test_resume_after_a_clean_end(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        for mode in (TRAIN, TRAIN, EVAL):
            job.step({"a": np.zeros(3)}, mode=mode)
    trial = tensortrial.create_trial(tmp_path)
    assert trial.loaded_all_steps
    with Job(tmp_path, resume=True) as job:
        trial.refresh()
        assert not trial.loaded_all_steps
        assert trial.steps() == [0, 1, 2]
        step = job.step({"a": np.ones(3)}, mode=TRAIN)
        assert (step.mode_step, step.global_step) == (2, 3)
        assert job.step({"a": np.ones(3)}, mode=EVAL).mode_step == 1
    trial.refresh()
    assert (trial.steps(), trial.steps(TRAIN), trial.steps(EVAL)) == ([0, 1, 2, 3, 4], [0, 1, 2], [0, 1])
    assert trial.loaded_all_steps


def test_resume_after_a_crash_between_values_and_index(tmp_path: Path) -> None:
    job = Job(tmp_path, flush_seconds=3600)
    job.publish({"a": np.zeros(3)})
    # Values of a step that is still open are published; then the process dies.
    job.put(job.begin(), {"a": np.full(3, -1.0)})
    job.publish({"b": 1.0})
    for path in tmp_path.glob("index/*/*/00000001.parquet"):
        path.unlink()
    assert next_flush(open_storage(tmp_path), "worker_0").number == 2
    with Job(tmp_path, resume=True) as again:
        assert again.step({"a": np.ones(3)}).global_step == 1
    trial = tensortrial.create_trial(tmp_path)
    assert trial.steps() == [0, 1]
    assert trial.tensor("a").value(1).tolist() == [1, 1, 1]
    job.abandon()


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 2)])
def test_resume_with_another_number_of_workers(tmp_path: Path, before: int, after: int) -> None:
    for rank, job in enumerate([Job(tmp_path, f"worker_{rank}", before) for rank in range(before)]):
        for _ in range(3 if rank == 0 else 1):  # the others crashed early
            job.step({"a": np.zeros(2)})
        job.flush()
    jobs = [Job(tmp_path, f"worker_{rank}", after, resume=True) for rank in range(after)]
    assert {job.next_global_step for job in jobs} == {3}
    trial = tensortrial.create_trial(tmp_path)
    # What the earlier session left is all there will be of it.
    assert trial.steps() == [0, 1, 2]
    assert trial.num_workers == after
    jobs[0].publish({"a": np.ones(2)})
    assert trial.steps() == ([0, 1, 2, 3] if after == 1 else [0, 1, 2])
    for job in jobs[1:]:
        job.step({"a": np.ones(2)})
    for job in jobs:
        job.close()
    trial.refresh()
    assert trial.steps() == [0, 1, 2, 3]
    assert trial.loaded_all_steps


def test_the_last_worker_to_resume_follows_the_first_although_it_has_published(tmp_path: Path) -> None:
    for job in [Job(tmp_path, f"worker_{rank}", 2) for rank in range(2)]:
        job.step({"a": 1.0})
        job.close()
    first = Job(tmp_path, "worker_0", 2, resume=True)
    first.step({"a": 2.0})
    first.close()
    second = Job(tmp_path, "worker_1", 2, resume=True)
    assert second.next_global_step == 1
    second.close()


def test_resume_takes_back_that_the_run_was_marked_as_ended(tmp_path: Path) -> None:
    Job(tmp_path).flush()
    trial = tensortrial.create_trial(tmp_path)
    trial.mark_ended()
    with Job(tmp_path, resume=True):
        trial.refresh()
        assert not trial.loaded_all_steps


def test_resume_of_nothing_begins_a_run(tmp_path: Path) -> None:
    with Job(tmp_path / "new", resume=True) as job:
        assert job.step({"a": 1.0}).global_step == 0
    assert tensortrial.create_trial(tmp_path / "new").steps() == [0]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", NotARun),
        ("[]", NotARun),
        ('{"name": "somebody else\'s"}', NotARun),
        ('{"tensortrial": "run"}', NotARun),
        ('{"tensortrial": "run", "format": 1}', NotARun),
        ('{"tensortrial": "run", "format": "x"}', NotARun),
        ('{"tensortrial": "run", "format": 99, "started_at": ""}', UnknownFormat),
    ],
)
def test_a_folder_that_is_not_a_run_is_neither_read_nor_written_to(
    tmp_path: Path, text: str, error: type[Exception]
) -> None:
    (tmp_path / "run.json").write_text(text)
    for act in (lambda: tensortrial.create_trial(tmp_path), lambda: check_out_dir(open_storage(tmp_path), "w", 1)):
        with pytest.raises(error, match=str(tmp_path)):
            act()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"worker": 1', "\xff"])
def test_a_damaged_claim_is_named_when_a_run_is_resumed(tmp_path: Path, text: str) -> None:
    Job(tmp_path).close()
    (tmp_path / "collections" / "worker_0.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(FileError, match=r"collections/worker_0\.json"):
        Resumption(open_storage(tmp_path), "worker_0", 1).progress()


def test_resume_continues_after_steps_whose_claim_was_lost_by_a_loss_of_power(tmp_path: Path) -> None:
    with Job(tmp_path, "a/b") as job:
        job.step({"a": np.zeros(2)})
    (tmp_path / "collections" / "a%2Fb.json").unlink()
    assert Resumption(open_storage(tmp_path), "a/b", 1).progress().global_step == 1


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_session_whose_claims_were_lost_by_a_loss_of_power_is_not_joined(tmp_path: Path, is_gone: bool) -> None:
    path, earlier = tmp_path / "collections" / "worker_0.json", b""
    for resume in (False, True):
        earlier = path.read_bytes() if resume else b""
        for job in [Job(tmp_path, f"worker_{rank}", 2, resume=resume) for rank in range(2)]:
            job.step({"a": 1.0})
            job.close()
    # Both have saved step 1 in the second session. Of worker_0's claim the disk has the state of the first.
    path.unlink() if is_gone else path.write_bytes(earlier)
    storage = open_storage(tmp_path)
    assert [Resumption(storage, f"worker_{rank}", 2).progress().global_step for rank in range(2)] == [2, 2]


def test_a_run_with_a_claim_of_another_worker_is_not_resumed(tmp_path: Path) -> None:
    Job(tmp_path).close()
    (tmp_path / "collections" / "worker_0.json").rename(tmp_path / "collections" / "worker_1.json")
    with pytest.raises(FileError, match=r"collections/worker_1\.json: .* it names worker 'worker_0'"):
        Resumption(open_storage(tmp_path), "worker_0", 1).progress()


def test_claims_are_read_back() -> None:
    info = WorkerInfo("w/é", 2, CREATED, [{"name": "a"}], ["a"], 3, 7, {"TRAIN": 4})
    assert WorkerInfo.from_bytes(info.to_bytes(), collections_path(info.worker)) == info
    run = RunInfo(CREATED, "torch", 2, "zstd", 10, {"torch": "2"}, {"any": ["thing"]}, id="a")
    assert RunInfo.from_bytes(run.to_bytes(), "u") == run
    # A later release of the same format may say more.
    more = document_bytes({**json.loads(run.to_bytes()), "extra": 1})
    assert RunInfo.from_bytes(more, "u") == run


@pytest.mark.parametrize("last", [True, False])
def test_a_damaged_index_file_blocks_no_resumption(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, last: bool
) -> None:
    job = Job(tmp_path, flush_seconds=3600)
    for step in range(3):
        job.publish({"w": np.arange(3.0) + step}, TRAIN)
    job.abandon()
    damaged = sorted(tmp_path.glob("index/*/*/*.parquet"))[2 if last else 1]
    damaged.write_bytes(damaged.read_bytes()[:50])
    resumed = Job(tmp_path, resume=True, flush_seconds=3600)
    assert damaged.name in caplog.text
    # The chunk says which step the damaged file held.
    assert resumed.next_global_step == 3
    resumed.step({"w": np.arange(3.0) + 3}, TRAIN)
    resumed.close()
    trial = tensortrial.create_trial(tmp_path)
    assert trial.steps() == [0, *([1] if last else [2]), 3]
    assert trial.tensor("w").value(3).tolist() == [3, 4, 5]
    assert list(trial.damaged) == [str(damaged.relative_to(tmp_path))]


def test_a_resumption_continues_after_steps_that_one_listing_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only file servers and object stores list late, and not on request."""
    with Job(tmp_path) as job:
        job.step({"a": np.zeros(2)})
    list_after, lags = LocalStorage._list_after, [True]

    def lag(self: LocalStorage, folder: str, after: str) -> list[str]:
        return [] if lags and lags.pop() else list(list_after(self, folder, after))

    monkeypatch.setattr(LocalStorage, "_list_after", lag)
    assert Resumption(open_storage(tmp_path), "worker_0", 1).progress().global_step == 1
    assert not lags
