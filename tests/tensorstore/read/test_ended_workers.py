"""Workers that have ended: a refresh lists no index files of theirs, and misses nothing that comes all the same."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tensortrial
from support.limits import keep_index_files, set_limits
from support.plain_hook import WorkerHook
from tensortrial.maintenance.compaction import compact
from tensortrial.read.trial import Trial
from tensortrial.storage.open import open_storage

WORKERS = 3


@pytest.fixture(autouse=True)
def _keep(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_index_files(monkeypatch)
    set_limits(monkeypatch, files_of_a_manifest_at_close=0)
    # So that nothing is found because time has passed.
    set_limits(monkeypatch, seconds_between_checks_of_an_ended_run=0.0, seconds_between_reads_of_remote_claims=1000.0)


@pytest.fixture
def url() -> str:
    return f"memory://{secrets.token_hex(6)}/run"


@pytest.fixture
def living(url: str) -> WorkerHook:
    """Let three workers save steps 0 and 1, of which worker_1 and worker_2 have ended. Return worker_0."""
    hooks = [WorkerHook(url, rank, WORKERS) for rank in range(WORKERS)]
    for hook in hooks:
        save(hook, [0.0, 1.0])
    for hook in hooks[1:]:
        hook.close()
    return hooks[0]


def save(hook: WorkerHook, values: Sequence[float]) -> None:
    """Save a step for each of some values, each in an index file of its own."""
    for value in values:
        with hook.step():
            hook.save_scalar("x", value)
        hook.flush()


def saved(trial: Trial) -> dict[str, list[float]]:
    """Return the values of each worker."""
    rows = trial.sql("select worker, value from scalars order by worker, global_step").fetchall()
    by_worker = {worker: [value for of, value in rows if of == worker] for worker, _ in rows}
    values = {worker: list(trial.tensor("x").values(worker=worker).values()) for worker in by_worker}
    assert values == by_worker
    return by_worker


def of_all(values: list[float]) -> dict[str, list[float]]:
    """Return values that each worker has saved."""
    return {f"worker_{rank}": values for rank in range(WORKERS)}


def resumed(url: str, rank: int, size: int = WORKERS) -> WorkerHook:
    return WorkerHook(url, rank, size, resume=True)


@pytest.mark.parametrize("ended", [False, True], ids=["worker_0 lives", "all have ended"])
@pytest.mark.parametrize("refreshed", [True, False], ids=["refreshed", "just opened"])
def test_a_session_that_began_and_ended_between_two_refreshes_is_found(
    url: str, living: WorkerHook, ended: bool, refreshed: bool
) -> None:
    if ended:
        living.close()
    with tensortrial.create_trial(url) as trial:
        if refreshed:
            assert saved(trial) == of_all([0.0, 1.0])
        living.close()
        for rank in (1, 2):
            hook = resumed(url, rank)
            save(hook, [2.0, 3.0])
            hook.close()
        assert saved(trial)["worker_1"] == saved(trial)["worker_2"] == [0.0, 1.0, 2.0, 3.0]
        # Once more, when its leases and end marks have been read.
        hook = resumed(url, 2)
        save(hook, [4.0])
        hook.close()
        assert saved(trial)["worker_2"] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_session_without_a_worker_hides_nothing_of_the_one_before_it(url: str, living: WorkerHook) -> None:
    living.close()
    with tensortrial.create_trial(url) as trial:
        saved(trial)
        hook = resumed(url, 2)
        save(hook, [2.0])
        hook.close()
        # A job of one worker, which removes the leases of all earlier sessions.
        hook = resumed(url, 0, size=1)
        save(hook, [3.0])
        assert saved(trial)["worker_2"] == [0.0, 1.0, 2.0]
        assert saved(trial)["worker_0"] == [0.0, 1.0, 3.0]
        hook.close()


def test_a_session_that_went_back_and_ended_between_two_refreshes_is_found(url: str, living: WorkerHook) -> None:
    living.close()
    with tensortrial.create_trial(url) as trial:
        saved(trial)
        for rank in range(WORKERS):
            hook = resumed(url, rank)
            hook.resume_at(1)
            save(hook, [10.0])
            hook.close()
        assert saved(trial) == of_all([0.0, 10.0])


def test_a_compaction_by_another_process_changes_no_answer(url: str, living: WorkerHook) -> None:
    living.close()
    with tensortrial.create_trial(url) as trial:
        before = saved(trial)
        assert compact(url, delete_older_than=0).files_after == WORKERS
        assert saved(trial) == before
        hook = resumed(url, 1)
        save(hook, [2.0])
        hook.close()
        assert saved(trial)["worker_1"] == [0.0, 1.0, 2.0]


def test_a_worker_that_was_marked_as_ended_and_publishes_later_is_read(url: str, living: WorkerHook) -> None:
    with tensortrial.create_trial(url) as trial:
        trial.mark_ended("worker_0")
        assert saved(trial)["worker_0"] == [0.0, 1.0]
        save(living, [2.0])
        assert saved(trial)["worker_0"] == [0.0, 1.0, 2.0]
        living.close()
        assert saved(trial)["worker_0"] == [0.0, 1.0, 2.0]


def test_an_index_file_that_was_missing_is_read_once_it_is_restored(url: str, living: WorkerHook) -> None:
    storage = open_storage(url)
    lost = storage.list_after("index/worker=worker_1")[-1]
    content = storage.read(lost)
    storage.remove(lost)
    with tensortrial.create_trial(url) as trial:
        assert list(trial.damaged) == [lost]
        tensortrial.repair(url, force=True)
        storage.create(lost, content)
        assert saved(trial)["worker_1"] == [0.0, 1.0]
        assert trial.damaged == {}
    living.close()


def test_a_run_that_replaced_an_ended_one_is_read(url: str, living: WorkerHook) -> None:
    living.close()
    with tensortrial.create_trial(url) as trial:
        saved(trial)
        hook = WorkerHook(url, 0, 1, on_exists="replace")
        save(hook, [7.0, 8.0, 9.0])
        hook.close()
        trial.refresh()
        assert saved(trial) == {"worker_0": [7.0, 8.0, 9.0]}


def test_a_refresh_between_any_two_writes_of_a_smaller_job_that_goes_back_misses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the storage knows the moments between two writes."""
    storage_type, before_writes = type(open_storage("memory://any/run")), list[Callable[[], object]]()
    for name in ("create", "replace", "remove", "sink"):
        write = getattr(storage_type, name)

        def written(*arguments: Any, write: Callable[..., Any] = write) -> Any:
            for each in before_writes:
                each()
            return write(*arguments)

        monkeypatch.setattr(storage_type, name, written)

    def replay(trials_to_open: int) -> tuple[int, list[int]]:
        """Refresh another open trial before each write of a job. Return the writes, and the trials that miss a step."""
        url, writes = f"memory://{secrets.token_hex(6)}/run", 0
        hooks = [WorkerHook(url, rank, WORKERS) for rank in range(WORKERS)]
        for hook in hooks:
            save(hook, [0.0, 1.0, 2.0, 3.0])
        for hook in hooks:
            hook.close()
        trials = [tensortrial.create_trial(url) for _ in range(trials_to_open)]
        assert all(map(saved, trials))

        def refresh_the_next() -> None:
            nonlocal writes
            writes += 1
            if writes <= len(trials):
                trials[writes - 1].steps()

        before_writes.append(refresh_the_next)
        alone = WorkerHook(url, 0, 1, resume=True)
        alone.resume_at(1)
        save(alone, [10.0])
        alone.close()
        before_writes.clear()
        expected = saved(tensortrial.create_trial(url))
        for trial in trials:
            trial.steps()
        return writes, [at for at, trial in enumerate(trials) if saved(trial) != expected]

    writes, _ = replay(0)
    assert writes > 10
    assert replay(writes)[1] == []
