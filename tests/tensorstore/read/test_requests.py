"""The requests to an object store: how many, and none twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.limits import keep_index_files, set_limits
from support.plain_hook import Hook, WorkerHook
from support.runs import Job
from support.servers import ObjectStore
from tensortrial.read.trial import Trial
from tensortrial.storage.open import open_storage

FLUSHES, TENSORS = 20, 10

pytestmark = pytest.mark.s3


class Requests(Counter[tuple[str, str, str]]):
    """Requests by method, key or prefix, and range."""

    def count(self, method: str) -> int:
        return sum(times for (name, _, _), times in self.items() if name == method)

    def twice(self) -> list[tuple[str, str, str]]:
        return [request for request, times in self.items() if times > 1 and request[0] == "GetObject"]


@pytest.fixture(scope="module")
def run(moto_s3: ObjectStore) -> tuple[str, dict[str, Any]]:
    """A run of many index files, which no test changes."""
    return write_run(moto_s3)


def write_run(moto_s3: ObjectStore) -> tuple[str, dict[str, Any]]:
    url = f"{moto_s3.new_bucket()}/project/run"
    with pytest.MonkeyPatch.context() as patched:
        keep_index_files(patched)
        _write(url, moto_s3)
    return url, moto_s3.storage_options


def _write(url: str, moto_s3: ObjectStore) -> None:
    with Job(url, storage_options=moto_s3.storage_options, flush_seconds=3600) as job:
        for _ in range(FLUSHES):
            values = {f"w{number}": np.full((32, 32), number) for number in range(TENSORS)}
            job.publish({**values, "loss": 1.5})


@pytest.fixture
def new_requests(moto_s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Requests]]:
    """Return the requests since the last call."""
    # However slow the machine is: it lists the run again after so long.
    set_limits(monkeypatch, seconds_between_checks_of_an_ended_run=1000.0)
    made = Requests()

    def count(params: dict[str, Any], model: Any, **_: Any) -> None:
        made[model.name, params.get("Key") or params.get("Prefix", ""), params.get("Range", "")] += 1

    def since() -> Requests:
        found = Requests(made)
        made.clear()
        return found

    # All runs of this server share a client.
    storage: Any = open_storage("s3://any/run", moto_s3.storage_options)
    client = storage.fs.s3
    client.meta.events.register("before-parameter-build.s3", count, unique_id="count")
    yield since
    client.meta.events.unregister("before-parameter-build.s3", unique_id="count")


@pytest.fixture
def trial(run: tuple[str, dict[str, Any]], new_requests: Callable[[], Requests]) -> Trial:
    url, options = run
    trial = tensortrial.create_trial(url, storage_options=options)
    assert trial.steps() == list(range(FLUSHES))
    return trial


def test_opening_a_run_reads_each_file_once(trial: Trial, new_requests: Callable[[], Requests]) -> None:
    opened = new_requests()
    assert opened.count("ListObjectsV2") == 3
    # run.json, the manifest, which this run does not have, the claim and the end mark of the worker, its index files.
    assert opened.count("GetObject") == 4 + FLUSHES
    assert opened.count("HeadObject") == 0
    assert opened.twice() == []


def test_a_value_is_one_request(trial: Trial, new_requests: Callable[[], Requests]) -> None:
    new_requests()
    assert trial.tensor("w3").value(7)[0, 0] == 3
    assert [method for method, _, part in new_requests() if part] == ["GetObject"]


def test_queries_of_the_index_make_no_request(trial: Trial, new_requests: Callable[[], Requests]) -> None:
    new_requests()
    assert trial.sql("select avg(value) from scalars").fetchall() == [(1.5,)]
    assert len(trial.tensor("loss").steps()) == FLUSHES
    assert new_requests().count("GetObject") == 0


def test_all_steps_of_a_tensor_are_one_request_each(trial: Trial, new_requests: Callable[[], Requests]) -> None:
    new_requests()
    assert len(trial.tensor("w3").values()) == FLUSHES
    requests = new_requests()
    assert requests.count("GetObject") == FLUSHES
    assert requests.twice() == []
    assert requests.count("HeadObject") == 0


def test_values_by_sql_request_no_size(trial: Trial, new_requests: Callable[[], Requests]) -> None:
    new_requests()
    assert trial.sql("select count(value) from tensor_values where name = 'w3'").fetchall() == [(FLUSHES,)]
    requests = new_requests()
    assert requests.count("HeadObject") == 0
    assert requests.twice() == []


def test_a_large_index_file_is_fetched_whole_and_once(
    moto_s3: ObjectStore, new_requests: Callable[[], Requests]
) -> None:
    url = f"{moto_s3.new_bucket()}/run"
    with Job(url, storage_options=moto_s3.storage_options, flush_seconds=3600) as job:
        random = np.random.default_rng(0)
        for _ in range(20):
            job.step({f"layer{number}": random.normal(size=1) for number in range(1000)})
    new_requests()
    trial = tensortrial.create_trial(url, storage_options=moto_s3.storage_options)
    assert trial.sql("select count(*) from scalars").fetchall() == [(20_000,)]
    assert len(trial.tensor("layer7").steps()) == 20
    index = Counter(key for method, key, _ in new_requests().elements() if method == "GetObject" and "/index/" in key)
    # Its end when the run is opened, and the rest when it is queried.
    assert list(index.values()) == [2]


def test_a_closed_run_is_opened_by_its_manifest(moto_s3: ObjectStore, new_requests: Callable[[], Requests]) -> None:
    url, options = f"{moto_s3.new_bucket()}/run", moto_s3.storage_options
    hook = Hook(url, storage_options=options, flush_seconds=3600)
    for _ in range(FLUSHES):
        with hook.step():
            hook.save_tensor("w", np.full((32, 32), 3.0))
            hook.save_scalar("loss", 1.5)
        hook.flush()
    hook.close()
    new_requests()
    trial = tensortrial.create_trial(url, storage_options=options)
    assert trial.steps() == list(range(FLUSHES))
    assert trial.tensor_names() == ["loss", "w"]
    assert trial.workers() == ["worker_0"]
    assert trial.has_passed_step(3)
    assert trial.loaded_all_steps
    opened = new_requests()
    # Neither an index file nor a claim: run.json, the manifest, and the names of the leases.
    assert sorted(key.rpartition("/")[2] for method, key, _ in opened if method == "GetObject") == [
        "manifest.parquet",
        "run.json",
    ]
    assert opened.count("ListObjectsV2") == 1
    assert sum(opened.values()) == 3
    assert trial.tensor("w").value(7)[0, 0] == 3
    # The rest of the index file, and the value.
    assert new_requests().count("GetObject") == 2


def test_a_refresh_lists_the_index_files_of_living_workers_only(
    moto_s3: ObjectStore, new_requests: Callable[[], Requests], monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is: it reads the claims again after so long.
    set_limits(monkeypatch, seconds_between_reads_of_remote_claims=1000.0)
    url, options = f"{moto_s3.new_bucket()}/run", moto_s3.storage_options
    hooks = [WorkerHook(url, rank, 3, storage_options=options) for rank in range(3)]
    for hook in hooks:
        with hook.step():
            hook.save_scalar("loss", 1.5)
        hook.flush()
    for hook in hooks[:2]:
        hook.close()
    with tensortrial.create_trial(url, storage_options=options) as trial:
        set_limits(monkeypatch, seconds_between_checks_of_an_ended_run=0.0)
        new_requests()
        assert trial.steps() == [0]
        requests = [(method, key.partition("run/")[2]) for method, key, _ in new_requests().elements()]
        listed = ["collections/", "end/", "leases/"]
        assert requests == [("ListObjectsV2", folder) for folder in [*listed, "index/worker=worker_2/"]]
        hooks[2].close()
        assert trial.loaded_all_steps
        new_requests()
        assert trial.steps() == [0]
        requests = [(method, key.partition("run/")[2]) for method, key, _ in new_requests().elements()]
        assert requests == [("ListObjectsV2", "leases/")]


def test_values_of_a_few_steps_read_few_of_many_index_files(
    trial: Trial, new_requests: Callable[[], Requests], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, files_read_ahead=FLUSHES - 1)
    for step in (2, 9, 15):
        new_requests()
        assert trial.tensor("w3").value(step)[0, 0] == 3
        read = [key for method, key, _ in new_requests().elements() if method == "GetObject" and "/index/" in key]
        assert len(read) <= 1


def test_a_verification_reads_each_file_once(
    run: tuple[str, dict[str, Any]], new_requests: Callable[[], Requests]
) -> None:
    url, options = run
    report = tensortrial.verify(url, storage_options=options)
    made = new_requests()
    assert report.is_whole
    chunks = {request: times for request, times in made.items() if "/tensors/" in request[1]}
    assert len(chunks) == FLUSHES
    assert set(chunks.values()) == {1}
    index = [times for (method, key, _), times in made.items() if method == "GetObject" and "/index/" in key]
    assert sum(index) == 2 * FLUSHES, "its end, to find its rows, and then all of it"
    assert made.total() <= 3 * FLUSHES + 30, made


def test_a_damaged_run_is_verified_and_repaired(moto_s3: ObjectStore) -> None:
    url, options = write_run(moto_s3)
    storage = open_storage(url, options)
    chunks = [file.path for file in storage.walk() if file.path.startswith("tensors/")]
    damaged = bytearray(storage.read(chunks[3]))
    damaged[5000] ^= 1
    storage.replace(chunks[3], bytes(damaged))
    storage.remove(chunks[5])
    stray = chunks[0].replace("00000000.parquet", "00000099.parquet")
    storage.create(stray, storage.read(chunks[0]))
    report = tensortrial.verify(url, storage_options=options)
    assert [(each.path, each.steps) for each in report.damaged] == [(chunks[3], (3,)), (chunks[5], (5,))]
    assert [len(each.tensors) for each in report.damaged] == [1, TENSORS]
    assert [each.path for each in report.unnamed] == [stray]
    assert tensortrial.repair(url, storage_options=options).kept == (stray,)  # younger than an hour
    done = tensortrial.repair(url, storage_options=options, delete_older_than=0)
    assert (done.removed, done.marked, done.damaged) == ((stray,), (), ())
    report = tensortrial.verify(url, storage_options=options)
    assert report.is_whole
    assert [each.path for each in report.lost] == [chunks[3], chunks[5]]
    assert report.unnamed == ()
    with tensortrial.create_trial(url, storage_options=options) as trial:
        assert trial.tensor("w1").value(4).shape == (32, 32)


def test_a_new_run_checks_its_folder_by_one_listing(moto_s3: ObjectStore, new_requests: Callable[[], Requests]) -> None:
    with tensortrial.Run(f"{moto_s3.new_bucket()}/run", storage_options=moto_s3.storage_options, environment=False):
        made = new_requests()
        assert (made.count("ListObjectsV2"), made.total()) == (1, 2)  # and run.json, which is missing
