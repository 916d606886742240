"""Processes that begin or resume a run while another one resumes it.

Two real processes meet between two given calls of the storage about never. Here one thread is both, and the second acts
before or after a call of the first; where no event of the interpreter is there, a method of the storage is replaced.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from support.file_access import before
from support.internals import has_noticed_its_successor
from support.leased_runs import recorder, resume, step
from support.limits import set_limits
from support.waiting import wait_until
from tensortrial import create_trial
from tensortrial.errors import RunInUse, RunTakenOver, StorageError
from tensortrial.format.schema import COLLECTIONS, LEASES, MANIFEST, index_folder
from tensortrial.hooks.core.process.rank import Rank
from tensortrial.storage.local import LocalStorage, _LocalSink
from tensortrial.storage.open import Storage, open_storage
from tensortrial.write.lease import SECONDS_VARIABLE

FIRST, SECOND = (f"{LEASES}/worker_0={session:08}.json" for session in range(2))


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT", raising=False)


def values(storage: Storage) -> list[tuple[int, float]]:
    tensor = create_trial(storage.url).tensor("x")
    return [(each, float(tensor.value(each))) for each in tensor.steps()]


def test_the_first_process_stops_if_its_lease_comes_after_a_resumption(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "run")
    first, second = recorder(storage.url), resume(storage)

    def resume_first() -> None:
        step(second, 1.0)
        second.flush()

    with before(["publish"], tmp_path / "run" / FIRST, resume_first), pytest.raises(RunTakenOver):
        step(first, 0.0)
    assert storage.list(LEASES) == [SECOND.rpartition("/")[2]]
    step(second, 2.0)
    second.close()
    assert values(storage) == [(0, 1.0), (1, 2.0)]


@pytest.mark.parametrize("force", [False, True])
def test_a_resumption_sees_a_lease_that_came_after_it_had_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    storage = open_storage(tmp_path / "run")
    first, second = recorder(storage.url), resume(storage, force=force)
    create = LocalStorage.create
    leases: list[bytes] = []

    def create_between(self: LocalStorage, path: str, data: bytes) -> None:
        if path == FIRST:
            leases.append(data)  # it is written when the second process has seen that there is none
            with nullcontext() if force else pytest.raises(RunInUse):
                step(second, 1.0)
            return
        if path == SECOND:
            create(self, FIRST, leases[0])
        create(self, path, data)

    monkeypatch.setattr(LocalStorage, "create", create_between)
    with pytest.raises(RunTakenOver) if force else nullcontext():
        step(first, 1.0)
    writing = second if force else first
    assert storage.list(LEASES) == [(SECOND if force else FIRST).rpartition("/")[2]]
    step(writing, 2.0)
    writing.close()
    assert values(storage) == [(0, 1.0), (1, 2.0)]


def test_a_process_that_begins_does_not_take_the_lease_of_one_that_has_joined_as_the_same_worker(
    tmp_path: Path,
) -> None:
    storage = open_storage(tmp_path / "run")
    step(other := recorder(storage.url, Rank(1, 2)), 0.0)
    first, second = recorder(storage.url, Rank(0, 2)), resume(storage, rank=Rank(0, 2))

    def begin() -> None:
        assert FIRST.rpartition("/")[2] in storage.list(LEASES)
        with pytest.raises(RunInUse):
            step(first, 1.0)

    # The second process holds the lease, and has written no claim yet.
    with before(["publish"], tmp_path / "run" / COLLECTIONS, begin):
        step(second, 2.0)
    for each in (other, first, second):
        each.close()
    rows = create_trial(storage.url).sql("select worker, global_step, scalar from tensors order by all").fetchall()
    assert rows == [("worker_0", 0, 2.0), ("worker_1", 0, 0.0)]


@pytest.mark.parametrize("goes_back", [False, True])
def test_a_resumption_that_was_overtaken_in_a_slow_call_changes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_back: bool
) -> None:
    storage = open_storage(tmp_path / "run")
    first = recorder(storage.url)
    step(first, 0.0)
    first.close()
    slow = resume(storage)
    if goes_back:
        slow.resume_at(0, None)
    remove = LocalStorage.remove
    overtakes = [resume(storage, force=True)]

    def remove_slowly(self: LocalStorage, path: str) -> None:
        remove(self, path)
        if path == MANIFEST and overtakes:
            third = overtakes.pop()
            step(third, 3.0)
            third.close()

    monkeypatch.setattr(LocalStorage, "remove", remove_slowly)
    with pytest.raises(RunTakenOver):
        step(slow, 1.0)
    assert not overtakes
    assert values(storage) == [(0, 0.0), (1, 3.0)]
    assert create_trial(storage.url).loaded_all_steps


def test_a_resumption_that_was_overtaken_while_it_sets_steps_aside_sets_aside_no_more(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "run")
    first = recorder(storage.url)
    for number in range(3):
        step(first, float(number))
    first.close()
    slow = resume(storage)
    slow.resume_at(1, None)
    third = resume(storage, force=True)

    def overtake() -> None:
        step(third, 3.0)
        third.close()

    with before(["read"], tmp_path / "run" / "index", overtake), pytest.raises(RunTakenOver):
        step(slow, 4.0)
    assert values(storage) == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0)]


def test_a_process_whose_lease_is_gone_publishes_nothing_while_it_cannot_see_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(tmp_path / "run")
    first, second = recorder(storage.url), resume(storage, force=True)
    step(first, 0.0)
    first.flush()
    step(second, 1.0)
    second.close()
    files, listing = storage.list_after(index_folder("worker_0")), LocalStorage.list

    def fail(self: LocalStorage, folder: str) -> list[str]:
        if folder == LEASES:
            raise StorageError(folder, "no")
        return listing(self, folder)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "list", fail)
        step(first, 2.0)
        with pytest.raises(StorageError):
            first.flush()
    first.close()
    assert storage.list_after(index_folder("worker_0")) == files
    assert values(storage) == [(0, 0.0), (1, 1.0)]
    assert create_trial(storage.url).loaded_all_steps


@pytest.mark.parametrize("published", ["tensors", "index"])
def test_a_flush_during_which_the_run_was_taken_over_is_not_reported_as_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: str
) -> None:
    monkeypatch.setenv(SECONDS_VARIABLE, "0.3")
    set_limits(monkeypatch, seconds_of_a_lock=0.1)
    storage = open_storage(tmp_path / "run")
    first, second = recorder(storage.url), resume(storage, force=True)
    step(first, 0.0)
    first.flush()
    publish, slow = _LocalSink.publish, [True]

    def publish_slowly(self: _LocalSink) -> None:
        publish(self)
        if self.path.startswith(published) and slow and slow.pop():
            second.hold_step(20_000)  # whose index file is in another folder
            second.save_scalars([("x", 1.0)])
            second.close()
            wait_until(lambda: has_noticed_its_successor(first))

    monkeypatch.setattr(_LocalSink, "publish", publish_slowly)
    first.begin_step()
    first.save_tensor("x", np.full(3, 2.0))
    first.end_step()
    with pytest.raises(RunTakenOver):
        first.flush()
    assert not slow
    first.close()
    trial = create_trial(storage.url)
    assert trial.loaded_all_steps
    rows = trial.sql("select global_step, scalar from tensors order by all").fetchall()
    # Without its row, a value is no part of the run.
    assert rows == ([(0, 0.0), (20_000, 1.0)] if published == "tensors" else [(0, 0.0), (1, None), (20_000, 1.0)])
