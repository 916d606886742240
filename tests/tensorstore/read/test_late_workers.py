"""One worker of several is dead: who is waited for is said, and the worker can be marked as ended."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

import tensortrial
from support.limits import set_limits
from support.runs import TRAIN, Job
from tensortrial.errors import InvalidWorker, StepNotYetAvailable
from tensortrial.read.step_states import StepState


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A job of two workers, of which worker_1 was killed after step 2, and worker_0 goes on to step 5."""
    jobs = [Job(tmp_path / "run", f"worker_{rank}", 2) for rank in range(2)]
    for job, steps in zip(jobs, (6, 3), strict=True):
        for _ in range(steps):
            job.step({"x": 1.0}, TRAIN)
        job.flush()
        job.abandon()
    return tmp_path / "run"


def test_a_reader_says_which_worker_is_late_and_since_when(killed: Path) -> None:
    trial = tensortrial.create_trial(killed)
    assert trial.steps() == [0, 1, 2]
    (late,) = trial.late_workers()
    assert (late.worker, late.last_step, late.newest_step) == ("worker_1", 2, 5)
    assert late.saved_at is not None
    assert late.saved_at.isoformat() == "2026-01-01T00:00:00.002000+00:00"
    assert late.behind_seconds is not None
    assert late.behind_seconds > 0


def test_a_timeout_names_the_late_worker_and_the_way_out(killed: Path) -> None:
    trial = tensortrial.create_trial(killed)
    with pytest.raises(StepNotYetAvailable, match="worker_1 has saved nothing since step 2, at 2026-01-01") as caught:
        trial.wait_for_steps([4], timeout=0.1)
    assert f"tensortrial mark-ended {killed} --worker worker_1" in str(caught.value)
    with pytest.raises(StepNotYetAvailable, match="worker_1"):
        trial.global_step(TRAIN, 9)


def test_a_long_wait_logs_the_late_worker(
    killed: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, seconds_of_silent_waiting=0.1)
    trial = tensortrial.create_trial(killed)
    waiter = threading.Thread(target=trial.wait_for_steps, args=([4],), kwargs={"timeout": 60})
    with caplog.at_level(logging.WARNING):
        waiter.start()
        while not caplog.messages:
            waiter.join(0.05)
            assert waiter.is_alive()
    assert "no new step for" in caplog.messages[0]
    assert "worker_1 has saved nothing since step 2" in caplog.messages[0]
    tensortrial.create_trial(killed).mark_ended(worker="worker_1")
    waiter.join(60)
    assert not waiter.is_alive()


def test_a_worker_marked_as_ended_is_waited_for_no_longer(killed: Path) -> None:
    trial, other = (tensortrial.create_trial(killed) for _ in range(2))
    trial.mark_ended(worker="worker_1")
    for each in (trial, other, tensortrial.create_trial(killed)):
        assert each.steps() == [*range(6)]
        assert each.late_workers() == []
        assert not each.loaded_all_steps
    trial.mark_ended(worker="worker_1")
    trial.mark_ended(worker="worker_0")
    assert other.loaded_all_steps
    assert "marked as ended" in (killed / "end" / "worker_1.json").read_text()


def test_an_unknown_worker_is_refused(killed: Path) -> None:
    with pytest.raises(InvalidWorker, match=r"'worker_2'.*worker_0, worker_1"):
        tensortrial.create_trial(killed).mark_ended(worker="worker_2")


def test_steps_after_a_worker_ended_by_itself_are_complete(tmp_path: Path) -> None:
    jobs = [Job(tmp_path, f"worker_{rank}", 2) for rank in range(2)]
    trial = tensortrial.create_trial(tmp_path)
    for job in jobs:
        job.step({"x": 1.0})
    jobs[1].close()
    jobs[0].step({"x": 1.0})
    assert trial.steps() == [0, 1]
    trial.mark_ended(worker="worker_1")
    assert '"failure": null' in (tmp_path / "end" / "worker_1.json").read_text()
    jobs[0].close()


def test_a_worker_that_never_began_is_named_and_can_be_marked(tmp_path: Path) -> None:
    job = Job(tmp_path, "worker_0", 3)
    job.step({"x": 1.0})
    other = Job(tmp_path, "worker_1", 3)
    trial = tensortrial.create_trial(tmp_path)
    assert [(late.worker, late.last_step) for late in trial.late_workers()] == [("worker_1", None), ("worker_2", None)]
    assert trial.steps() == []
    trial.mark_ended(worker="worker_2")
    other.step({"x": 1.0})
    assert trial.steps() == [0]
    job.close()
    other.close()
    assert trial.loaded_all_steps


def test_workers_that_resume_are_waited_for_again(killed: Path) -> None:
    trial = tensortrial.create_trial(killed)
    trial.mark_ended(worker="worker_1")
    jobs = [Job(killed, f"worker_{rank}", 2, resume=True) for rank in range(2)]
    jobs[0].step({"x": 1.0}, TRAIN)
    trial.refresh()
    assert trial.steps() == [*range(6)]
    assert [late.worker for late in trial.late_workers()] == ["worker_1"]
    for job in jobs:
        job.close()


def test_a_run_that_cannot_be_written_to_is_marked_for_this_reader(killed: Path) -> None:
    (killed / "end").mkdir(exist_ok=True)
    (killed / "end").rmdir()
    (killed / "end").write_text("a file where the folder of end marks should be")
    trial = tensortrial.create_trial(killed)
    trial.mark_ended(worker="worker_1")
    assert trial.steps() == [*range(6)]


def test_the_command_marks_a_worker(killed: Path) -> None:
    pytest.importorskip("click")
    from support.commands import run_command

    assert "worker_1 has saved nothing since step 2" in run_command("info", killed).stdout
    assert "worker_0, worker_1" in run_command("mark-ended", killed, "--worker", "worker_7", status=1).stderr
    run_command("mark-ended", killed, "--worker", "worker_1")
    assert tensortrial.create_trial(killed).steps() == [*range(6)]


def resumed(folder: Path, rank: int) -> Job:
    job = Job(folder, f"worker_{rank}", 2, resume=True)
    job.step({"x": 1.0})
    return job


def ended_job(folder: Path) -> None:
    for job in [Job(folder, f"worker_{rank}", 2) for rank in range(2)]:
        job.step({"x": 1.0})
        job.close()


def test_a_resumed_job_has_not_ended_before_all_its_workers_have_begun_again(tmp_path: Path) -> None:
    ended_job(tmp_path)
    trial = tensortrial.create_trial(tmp_path)
    assert trial.loaded_all_steps
    resumed(tmp_path, 0).close()
    for each in (trial, tensortrial.create_trial(tmp_path)):
        each.refresh()
        assert not each.loaded_all_steps
        assert each.has_passed_step(2) is StepState.NOT_YET_AVAILABLE
        assert [(late.worker, late.last_step) for late in each.late_workers()] == [("worker_1", 0)]
    resumed(tmp_path, 1).close()
    trial.refresh()
    assert trial.loaded_all_steps
    assert trial.has_passed_step(2) is StepState.UNAVAILABLE


def test_a_worker_that_does_not_begin_again_can_be_marked(tmp_path: Path) -> None:
    ended_job(tmp_path)
    trial, other = (tensortrial.create_trial(tmp_path) for _ in range(2))
    resumed(tmp_path, 0).close()
    trial.mark_ended(worker="worker_1")
    other.refresh()
    for each in (trial, other, tensortrial.create_trial(tmp_path)):
        assert each.loaded_all_steps
        assert each.late_workers() == []


def test_a_mark_of_a_worker_that_never_began_says_nothing_of_the_next_session(tmp_path: Path) -> None:
    job = Job(tmp_path, "worker_0", 2)
    job.step({"x": 1.0})
    job.close()
    trial = tensortrial.create_trial(tmp_path)
    trial.mark_ended(worker="worker_1")
    assert trial.loaded_all_steps
    resumed(tmp_path, 0).close()
    trial.refresh()
    assert not trial.loaded_all_steps
    assert not tensortrial.create_trial(tmp_path).loaded_all_steps
    trial.mark_ended(worker="worker_1")
    assert trial.loaded_all_steps
    assert tensortrial.create_trial(tmp_path).loaded_all_steps


def test_fewer_workers_than_before_end_a_resumed_job(tmp_path: Path) -> None:
    ended_job(tmp_path)
    trial = tensortrial.create_trial(tmp_path)
    with Job(tmp_path, "worker_0", 1, resume=True) as job:
        job.step({"x": 1.0})
        trial.refresh()
        assert not trial.loaded_all_steps
    trial.refresh()
    assert trial.loaded_all_steps
