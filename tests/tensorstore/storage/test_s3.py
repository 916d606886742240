"""The contract of storage in S3, with an emulator and a real server, and what only object stores can do wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.fault_proxy import faults_before
from support.servers import ObjectStore
from support.storage_contract import StorageContract
from tensortrial.errors import StorageError
from tensortrial.storage.open import ByteRange, Storage, open_storage


@pytest.mark.s3
class S3Contract(StorageContract):
    """The contract of object stores."""

    @pytest.fixture
    def server(self) -> ObjectStore:
        raise NotImplementedError

    @pytest.fixture
    def bucket(self, server: ObjectStore) -> str:
        return server.new_bucket()

    @pytest.fixture
    def reopen(self, server: ObjectStore, bucket: str) -> Callable[[], Storage]:
        return lambda: open_storage(f"{bucket}/project/run 1/", server.storage_options)

    @pytest.fixture
    def requests(self, storage: Storage) -> list[str]:
        """Collect the names of the requests."""
        made: list[str] = []
        storage.fs.s3.meta.events.register("before-parameter-build.s3", lambda model, **_: made.append(model.name))
        return made

    def test_each_thing_is_one_request(self, storage: Storage, requests: list[str]) -> None:
        storage.create("i/s/1", b"hello")
        assert requests == ["PutObject"]
        for act in (
            lambda: storage.read("i/s/1"),
            lambda: storage.read_tail("i/s/1", 3),
            lambda: storage.read_ranges([ByteRange("i/s/1", 0, 2), ByteRange("i/s/1", 3, 1)]),
        ):
            requests.clear()
            act()
            assert requests == ["GetObject"]
        for act in (lambda: storage.list_after("i", "s/1"), storage.exists_any, lambda: storage.list("i")):
            requests.clear()
            act()
            assert requests == ["ListObjectsV2"]

    def test_the_whole_bucket_may_be_the_run(self, server: ObjectStore, bucket: str) -> None:
        storage = open_storage(bucket, server.storage_options)
        assert storage.url == bucket
        assert not storage.exists_any()
        storage.create("run.json", b"{}")
        storage.create("i/s/1", b"{}")
        assert storage.exists_any()
        assert storage.list("") == ["i", "run.json"]
        assert storage.list_after("i") == ["i/s/1"]

    def test_a_missing_bucket_is_named(self, server: ObjectStore) -> None:
        storage = open_storage("s3://no-such-bucket-here/run", server.storage_options)
        assert not storage.exists_any()
        assert storage.list("") == storage.list_after("i") == []
        with pytest.raises(FileNotFoundError):
            storage.read("run.json")
        with pytest.raises(StorageError, match=r"bucket does not exist.*'no-such-bucket-here', key 'run/run.json'"):
            storage.create("run.json", b"")

    def test_a_put_whose_answer_was_lost_is_still_ours(self, server: ObjectStore, bucket: str) -> None:
        with faults_before(server) as proxy:
            storage = open_storage(f"{bucket}/run", proxy.store.storage_options)
            proxy.next_faults = ["reset after"]
            storage.create("a/1", b"once")
            assert proxy.done["reset after"] == 1
            assert storage.read("a/1") == b"once"

    def test_an_unreachable_server_is_named(self) -> None:
        options = {"endpoint_url": "http://127.0.0.1:9", "key": "k", "secret": "geheim"}
        storage = open_storage("s3://bucket/run", {**options, "config_kwargs": {"retries": {"max_attempts": 0}}})
        for act in (lambda: storage.create("a", b""), lambda: storage.read("a"), lambda: storage.list("a")):
            with pytest.raises(StorageError, match="the object store cannot be reached") as caught:
                act()
            assert "geheim" not in str(caught.value)


class TestMoto(S3Contract):
    @pytest.fixture
    def server(self, moto_s3: ObjectStore) -> ObjectStore:
        return moto_s3


class TestCeph(S3Contract):
    @pytest.fixture
    def server(self, ceph_s3: ObjectStore) -> ObjectStore:
        return ceph_s3

    def test_a_bucket_that_refuses_writes_is_named(self, server: ObjectStore, bucket: str) -> None:
        storage = open_storage(f"{bucket}/run", server.storage_options)
        storage.create("a", b"before")
        name = bucket.removeprefix("s3://")
        deny = {"Effect": "Deny", "Principal": "*", "Action": ["s3:PutObject"], "Resource": [f"arn:aws:s3:::{name}/*"]}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [deny]})
        server.client.put_bucket_policy(Bucket=name, Policy=policy)
        for write in (storage.create, storage.replace):
            with pytest.raises(StorageError, match="the bucket refuses the write") as got:
                write("b", b"after")
            assert f"bucket '{name}', key 'run/b'" in str(got.value)
            assert server.secret not in str(got.value)
            assert server.key not in str(got.value)
        assert storage.read("a") == b"before"
        assert storage.list("") == ["a"]

    def test_a_wrong_secret_is_not_shown(self, server: ObjectStore, bucket: str) -> None:
        storage = open_storage(f"{bucket}/run", {**server.storage_options, "secret": "wrong-one"})
        with pytest.raises(StorageError, match="the bucket refuses the read") as caught:
            storage.read("a")
        assert "wrong-one" not in str(caught.value)

    @pytest.mark.slow
    def test_listings_of_several_pages(self, storage: Storage) -> None:
        with ThreadPoolExecutor(16) as pool:
            [*pool.map(lambda number: storage.create(f"i/s/{number:08}", b""), range(1100))]
        assert storage.list_after("i", "s/00000002") == [f"i/s/{number:08}" for number in range(3, 1100)]
        assert len(storage.list("i/s")) == 1100
