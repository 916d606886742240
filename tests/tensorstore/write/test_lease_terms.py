"""How long a lease lasts for processes of other machines, and what its file holds."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.leased_runs import SECONDS, held_elsewhere, recorder, resume, step
from support.servers import ObjectStore
from support.waiting import wait_until
from tensortrial import create_trial
from tensortrial.errors import ConfigurationError, RunInUse, RunTakenOver
from tensortrial.format.schema import end_path, index_folder, session_end_path
from tensortrial.storage.open import Storage, open_storage
from tensortrial.write.lease import LeaseInfo, read_leases


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT", raising=False)


@pytest.fixture(params=["local", "memory", pytest.param("moto", marks=pytest.mark.s3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty folder or bucket."""
    if request.param == "local":
        return open_storage(tmp_path / "run")
    if request.param == "memory":
        return open_storage(f"memory://{tmp_path.name}/run")
    store: ObjectStore = request.getfixturevalue("moto_s3")
    return open_storage(f"{store.new_bucket()}/run", store.storage_options)


def test_another_machine_is_alive_for_as_long_as_its_lease(storage: Storage) -> None:
    held_elsewhere(storage)
    with pytest.raises(RunInUse, match="process 17 on host 'elsewhere'"):
        resume(storage)


def test_a_lease_that_ran_out_frees_the_worker(storage: Storage) -> None:
    lease = held_elsewhere(storage, seconds=0.2)
    written, _ = storage.written_at(lease.path)
    wait_until(lambda: storage.written_at(lease.path)[1] > written + lease.seconds)
    resumed = resume(storage)
    step(resumed, 1)
    resumed.close()
    # The other process may have been writing its second file when its lease ran out.
    assert [path[-16:] for path in storage.list_after(index_folder("worker_0"))] == [
        "00000000.parquet",
        "00000002.parquet",
    ]
    trial = create_trial(storage.url, storage_options=getattr(storage, "_options", None))
    assert trial.steps() == [0, 1]
    assert trial.loaded_all_steps


@pytest.mark.parametrize("hours", [-10, 10])
def test_a_jump_of_the_clock_kills_no_live_process(tmp_path: Path, hours: int) -> None:
    storage = open_storage(tmp_path / "run")
    lease = held_elsewhere(storage, seconds=6)
    file = tmp_path / "run" / lease.path
    past = time.time() - hours * 3600
    os.utime(file, (past, past))
    ended = threading.Event()

    def renew() -> None:
        number = 0
        while not ended.wait(0.3):
            number += 1
            os.utime(file, (past + number, past + number))

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with pytest.raises(RunInUse, match="elsewhere"):
            resume(storage)
    finally:
        ended.set()
        thread.join()


def test_a_process_that_missed_its_successor_stops_when_it_wakes(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = getattr(storage, "_options", None)
    monkeypatch.setenv("TENSORTRIAL_LEASE_SECONDS", "60" if storage.is_local else "0.6")
    first = recorder(storage.url, storage_options=options)
    step(first, 0)
    first.flush()
    taken = resume(storage, force=True)
    step(taken, 1)
    taken.flush()
    with monkeypatch.context() as patch:
        patch.setattr("tensortrial.write.lease._clock", lambda: time.monotonic() + 2 * SECONDS)  # the machine slept
        step(first, 5)
        with pytest.raises(RunTakenOver, match="taken the run over"):
            first.flush()
    first.close()
    assert storage.list("end") == [session_end_path("worker_0", 0).rpartition("/")[2]]
    taken.close()
    trial = create_trial(storage.url, storage_options=options)
    assert trial.tensor("x").values() == {0: 0, 1: 1}
    assert trial.loaded_all_steps


def test_an_end_of_an_earlier_session_does_not_end_the_run_for_readers(storage: Storage) -> None:
    options = getattr(storage, "_options", None)
    first = recorder(storage.url, storage_options=options)
    step(first, 0)
    first.close()
    old = storage.read(end_path("worker_0"))
    resumed = resume(storage)
    step(resumed, 1)
    resumed.flush()
    # The first process ended at the same moment.
    storage.replace(end_path("worker_0"), old)
    trial = create_trial(storage.url, storage_options=options)
    assert not trial.loaded_all_steps
    resumed.close()
    trial.refresh()
    assert trial.loaded_all_steps


@pytest.mark.s3
def test_a_lease_costs_a_request_for_each_third_of_it(moto_s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORTRIAL_LEASE_SECONDS", "0.9")
    storage: Any = open_storage(f"{moto_s3.new_bucket()}/run", moto_s3.storage_options)
    made = Counter[str]()
    storage.fs.s3.meta.events.register("before-parameter-build.s3", lambda model, **_: made.update([model.name]))
    held = recorder(storage.url, storage_options=moto_s3.storage_options)
    step(held, 0)
    held.flush()
    (lease,) = read_leases(storage)
    began = time.monotonic()
    made.clear()
    wait_until(lambda: made["CopyObject"] >= 2)
    requests = Counter(made)
    thirds = (time.monotonic() - began) / 0.3
    assert requests["CopyObject"] <= thirds + 1
    assert requests.total() == requests["CopyObject"]
    # The store's clock shows whole seconds.
    wait_until(lambda: -np.subtract(*storage.written_at(lease.path)) <= lease.seconds + 1)
    held.close()


@pytest.mark.s3
def test_a_real_store_takes_a_renewal_and_says_when(ceph_s3: ObjectStore) -> None:
    storage = open_storage(f"{ceph_s3.new_bucket()}/run", ceph_s3.storage_options)
    storage.create("leases/a", b"text")
    written, now = storage.written_at("leases/a")
    assert 0 <= now - written < 60

    def renewed() -> bool:
        storage.touch("leases/a")
        return storage.written_at("leases/a")[0] > written

    wait_until(renewed)  # the store's clock shows whole seconds
    assert storage.read("leases/a") == b"text"
    storage.remove("leases/a")
    with pytest.raises(FileNotFoundError):
        storage.touch("leases/a")
    with pytest.raises(FileNotFoundError):
        storage.written_at("leases/a")


# What is written.


def test_a_closed_run_is_held_by_nobody(storage: Storage) -> None:
    held = recorder(storage.url, storage_options=getattr(storage, "_options", None))
    step(held, 0)
    names = {thread.name for thread in threading.enumerate()}
    assert "tensortrial-lease-worker_0" in names
    held.close()
    (lease,) = read_leases(storage)
    assert lease.released_at is not None
    assert LeaseInfo.from_bytes(lease.to_bytes(), lease.path) == lease
    assert "tensortrial-lease-worker_0" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"worker": 5}', "[" * 100_000, '{"worker": "worker_0", "session": 0, "process": []}']
)
def test_a_damaged_lease_is_ignored(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    step(first := recorder(tmp_path / "run"), 0)
    first.close()
    (tmp_path / "run" / "leases" / "worker_0=00000000.json").write_text(text)
    recorder(tmp_path / "run", resume=True).close()
    assert "leases/worker_0=00000000.json is damaged and is ignored" in caplog.text


@pytest.mark.parametrize(
    "change", [{"worker": "worker_1"}, {"session": 1}, {"session": -1}, {"process": {"id": 1 << 40}}], ids=str
)
def test_a_lease_that_does_not_belong_to_its_file_is_damaged(
    tmp_path: Path, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    step(first := recorder(tmp_path), 0)
    first.close()
    file = tmp_path / "leases" / "worker_0=00000000.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert read_leases(open_storage(tmp_path)) == []
    assert "leases/worker_0=00000000.json is damaged and is ignored" in caplog.text


@pytest.mark.parametrize("text", ["", "60", "0.5"])
def test_the_length_of_a_lease_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TENSORTRIAL_LEASE_SECONDS", text)
    held = recorder(tmp_path / "run")
    step(held, 0)
    held.close()
    assert [lease.seconds for lease in read_leases(open_storage(tmp_path / "run"))] == [float(text or 60)]


@pytest.mark.parametrize("text", ["-1", "0", "x", "nan", "inf"])
def test_a_lease_length_that_is_not_a_number_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("TENSORTRIAL_LEASE_SECONDS", text)
    with pytest.raises(ConfigurationError, match=f"number of seconds.*'{text}'"):
        recorder(tmp_path / "run")
