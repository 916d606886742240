"""Training and reading over a network and a server that fail: errors, resets, cut and slow answers, a wrong clock."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("s3fs")
from night.s3_faults import STEPS, train_and_follow

import tensortrial.hooks.pytorch as tt
from support.fault_proxy import FAULTS, FaultProxy, faults_before
from support.servers import ObjectStore
from tensortrial import create_trial
from tensortrial.errors import RunInUse, StorageError
from tensortrial.storage.open import open_storage

pytestmark = pytest.mark.s3


@pytest.fixture
def proxy(moto_s3: ObjectStore) -> Iterator[FaultProxy]:
    with faults_before(moto_s3, seed=1) as proxy:
        yield proxy


@pytest.fixture
def url(moto_s3: ObjectStore) -> str:
    return f"{moto_s3.new_bucket()}/run"


@pytest.mark.slow
def test_a_writer_and_a_reader_get_through_faults_of_the_server(
    moto_s3: ObjectStore, proxy: FaultProxy, url: str, tmp_path: Path
) -> None:
    proxy.probability = 0.1
    proxy.next_faults = [each for fault in FAULTS for each in ("", "", fault)]
    assert train_and_follow(tmp_path, url, moto_s3, proxy) > STEPS
    assert all(proxy.done[fault] for fault in FAULTS), proxy.done


@pytest.mark.parametrize("fault", ["500", "503", "reset before", "reset after"])
@pytest.mark.parametrize("nbytes", [1000, 20_000_000])
def test_a_file_is_whole_that_was_put_again(
    moto_s3: ObjectStore, proxy: FaultProxy, url: str, fault: str, nbytes: int
) -> None:
    data = secrets.token_bytes(nbytes)
    proxy.methods, proxy.next_faults = ("PUT",), [fault, fault]
    # Of all but 500, what botocore gives up at once is repeated by s3fs.
    attempts = 5 if fault == "500" else 0
    options = {**proxy.store.storage_options, "config_kwargs": {"retries": {"max_attempts": attempts}}}
    open_storage(url, options).create("file", data)
    assert not proxy.next_faults
    assert open_storage(url, moto_s3.storage_options).read("file") == data


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_is_whole_that_was_read_again(moto_s3: ObjectStore, proxy: FaultProxy, url: str, fault: str) -> None:
    data = secrets.token_bytes(1_000_000)
    open_storage(url, moto_s3.storage_options).create("file", data)
    storage = open_storage(url, proxy.store.storage_options)
    proxy.methods, proxy.next_faults = ("GET",), [fault, fault]
    assert storage.read("file") == data
    assert proxy.done[fault] == (1 if fault == "slow" else 2)


@pytest.mark.slow
def test_a_server_that_fails_for_good_ends_the_hook_and_not_training(
    moto_s3: ObjectStore, proxy: FaultProxy, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT", raising=False)
    # By default botocore tries five times and waits longer each time.
    options = {**proxy.store.storage_options, "config_kwargs": {"retries": {"max_attempts": 1}}}
    hook = tt.Hook(url, storage_options=options, flush_seconds=3600)
    hook.save_scalar("x", 1.0)
    hook.set_mode("TRAIN")
    hook.flush()
    proxy.methods, proxy.probability = ("PUT",), 1.0
    proxy.next_faults = ["500"] * 1000
    hook.save_scalar("x", 2.0)
    hook.set_mode("EVAL")
    hook.flush()
    hook.close()
    assert "is off from here on, training is not affected" in caplog.text
    trial = create_trial(url, storage_options=moto_s3.storage_options)
    assert [float(value) for value in trial.tensor("x").values().values()] == [1.0]
    reader = create_trial(url, storage_options=options)
    proxy.methods = ("GET",)
    with pytest.raises(StorageError):
        reader.steps()
    proxy.methods = ()
    assert reader.steps(show_incomplete_steps=True) == [0]


@pytest.mark.parametrize("days", [-1, 1])
def test_a_server_whose_clock_is_off_by_a_day(
    moto_s3: ObjectStore, proxy: FaultProxy, url: str, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.skew = timedelta(days=days)
    options = proxy.store.storage_options
    first = tt.Hook(url, storage_options=options)
    first.save_scalar("x", 1.0)
    first.set_mode("TRAIN")
    first.flush()
    pretend_elsewhere(url, moto_s3)
    with pytest.raises(RunInUse):
        tt.Hook(url, storage_options=options, resume=True).save_scalar("x", 2.0)
    first.close()
    with tt.Hook(url, storage_options=options, resume=True).step() as _:
        tt.get_hook().save_scalar("x", 2.0)
    tt.get_hook().close()
    trial = create_trial(url, storage_options=options)
    assert [float(value) for value in trial.tensor("x").values().values()] == [1.0, 2.0]


def pretend_elsewhere(url: str, store: ObjectStore) -> None:
    """Let the lease of the run say that its process is on another machine."""
    storage = open_storage(url, store.storage_options)
    (name,) = storage.list("leases")
    lease = json.loads(storage.read(f"leases/{name}"))
    lease["process"] |= {"host": "elsewhere", "boot": "another"}
    lease.pop("checksum", None)
    storage.replace(f"leases/{name}", json.dumps(lease).encode())
