"""The contract of every kind of storage, and tests of what only one kind can do wrong."""

from __future__ import annotations

import errno
import functools
import gc
import importlib
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.servers import ObjectStore
from tensortrial.engines.run_files import RunFiles
from tensortrial.errors import AlreadyPublished, ConfigurationError, CorruptFile, MissingExtra, StorageError
from tensortrial.storage import open_files
from tensortrial.storage.open import ByteRange, Storage, canonical_url, open_storage, register_flush
from tensortrial.storage.ranges import merge

_names = st.text("abz09-./=_", min_size=1, max_size=4).filter(lambda s: "/" not in s and not s.startswith("."))
_two_level = st.tuples(_names, _names).map("/".join)


def _in_child(act: Callable[[], object]) -> int:
    """Call `act` in a forked child and return its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        act()
    except BaseException:  # noqa: BLE001 - the process ends
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def _creates(storage: Storage, path: str, data: bytes) -> bool:
    try:
        storage.create(path, data)
    except AlreadyPublished:
        return False
    return True


def _race(acts: list[Callable[[], bool]]) -> list[bool]:
    """Return the result of each, when all start at once."""
    start = threading.Barrier(len(acts))

    def run(act: Callable[[], bool]) -> bool:
        start.wait()
        return act()

    with ThreadPoolExecutor(len(acts)) as pool:
        return [*pool.map(run, acts)]


class StorageContract:
    """The contract, subclassed for each kind of storage."""

    @pytest.fixture
    def reopen(self) -> Callable[[], Storage]:
        """Return a function that opens the same new, empty folder."""
        raise NotImplementedError

    @pytest.fixture
    def storage(self, reopen: Callable[[], Storage]) -> Storage:
        return reopen()

    def test_an_empty_folder_has_nothing(self, storage: Storage) -> None:
        assert not storage.exists_any()
        assert storage.list("") == storage.list("index") == storage.list_after("index") == []
        storage.remove("index/a")

    def test_what_was_created_is_read_by_another(self, storage: Storage, reopen: Callable[[], Storage]) -> None:
        storage.create("index/a/1", b"hello")
        storage.create("run.json", memoryview(b"xyz")[1:])
        other = reopen()
        assert other.exists_any()
        assert (other.read("index/a/1"), other.read("run.json")) == (b"hello", b"yz")
        assert other.list("") == ["index", "run.json"]
        assert (other.list("index"), other.list("index/a"), other.list("index/a/1")) == (["a"], ["1"], [])

    def test_create_never_overwrites(self, storage: Storage) -> None:
        for data in (b"first", b""):
            storage.create(f"a/{data!r}", data)
            with pytest.raises(AlreadyPublished) as caught:
                storage.create(f"a/{data!r}", b"second")
            assert caught.value.path == f"a/{data!r}"
            assert storage.read(f"a/{data!r}") == data

    @pytest.mark.parametrize("empty", [False, True])
    def test_of_eight_racing_exactly_one_wins(self, reopen: Callable[[], Storage], empty: bool) -> None:
        for attempt in range(5):
            path = f"a/{attempt}"
            contents = [b"" if empty else bytes([number]) * 5000 for number in range(8)]
            won = _race([functools.partial(_creates, reopen(), path, data) for data in contents])
            assert won.count(True) == 1
            assert reopen().read(path) == contents[won.index(True)]
        assert reopen().list("a") == [str(attempt) for attempt in range(5)]

    def test_files_are_replaced_and_removed(self, storage: Storage) -> None:
        for data in (b"one", b"two!"):
            storage.replace("collections/w", data)
            assert storage.read("collections/w") == data
            assert storage.read_ranges([ByteRange("collections/w", 1, 9)]) == [data[1:]]
        storage.remove("collections/w")
        storage.remove("collections/w")
        with pytest.raises(FileNotFoundError):
            storage.read_ranges([ByteRange("collections/w", 1, 9)])

    def test_a_missing_file_is_named(self, storage: Storage) -> None:
        storage.create("a/b", b"1")
        for read in (
            lambda: storage.read("a/nope"),
            lambda: storage.read_tail("a/nope", 5),
            lambda: storage.read_ranges([ByteRange("a/b", 0, 1), ByteRange("a/nope", 0, 1)]),
        ):
            with pytest.raises(FileNotFoundError) as caught:
                read()
            assert caught.value.filename == "a/nope"
        with pytest.raises(FileNotFoundError):
            storage.read("a/b/c")
        with pytest.raises((FileNotFoundError, CorruptFile)):
            storage.read("a")

    def test_tails_are_read_with_the_size(self, storage: Storage) -> None:
        storage.create("t/empty", b"")
        storage.create("t/short", b"abc")
        storage.create("t/long", bytes(range(256)))
        assert storage.read_tail("t/empty", 10) == (b"", 0)
        assert storage.read_tail("t/short", 10) == (b"abc", 3)
        assert storage.read_tail("t/short", 0) == (b"", 3)
        assert storage.read_tail("t/long", 3) == (b"\xfd\xfe\xff", 256)
        *found, missing = storage.read_tails(["t/short", "t/long", "t/empty", "t/nope"], 2)
        assert found == [(b"bc", 3), (b"\xfe\xff", 256), (b"", 0)]
        assert isinstance(missing, FileNotFoundError)
        assert missing.filename == "t/nope"
        assert storage.read_tails([], 2) == []

    def test_ranges_are_returned_in_the_order_of_the_call(self, storage: Storage) -> None:
        data = secrets.token_bytes(400_000)
        storage.create("v/a", data)
        storage.create("v/b", data[::-1])
        wanted = [(399_990, 50), (0, 10), (5, 10), (10, 0), (200_000, 100_000), (15, 1), (500_000, 7), (0, 10)]
        ranges = [ByteRange(path, *each) for each in wanted for path in ("v/b", "v/a")]
        expected = [part[a : a + n] for a, n in wanted for part in (data[::-1], data)]
        assert storage.read_ranges(ranges) == expected
        assert storage.read_ranges([]) == []

    def test_ranges_are_read_into_existing_memory(self, storage: Storage) -> None:
        data = secrets.token_bytes(3_000_000)
        reverse = data[::-1]
        storage.create("v/a", data)
        storage.create("v/b", reverse)
        # Some lie one after another, more than one call takes; some lie apart, or overlap, or go past the end.
        wanted = [(start, 700) for start in range(100, 2_800_000, 700)] + [(5, 10), (0, 12), (12, 4), (2_999_990, 700)]
        ranges = [ByteRange(path, *each) for each in wanted[::-1] for path in ("v/b", "v/a")]
        memory = np.zeros((len(ranges), 704), np.uint8)
        buffers = [row[:length] for row, (_, _, length) in zip(memory, ranges, strict=True)]
        got = storage.read_into(ranges, buffers)
        expected = [part[a : a + n] for a, n in wanted[::-1] for part in (reverse, data)]
        assert got == [len(each) for each in expected]
        assert [bytes(buffer[:count]) for buffer, count in zip(buffers, got, strict=True)] == expected
        assert not memory[:, 700:].any()
        assert storage.read_into([], []) == []
        with pytest.raises(FileNotFoundError) as caught:
            storage.read_into([ByteRange("v/a", 0, 1), ByteRange("v/nope", 0, 1)], buffers[:2])
        assert caught.value.filename == "v/nope"

    def test_names_with_a_dot_are_not_listed(self, storage: Storage) -> None:
        for path in ("i/.hidden", "i/a/.hidden", "i/.sub/x", "i/a/x", "i/top", "i/a/deep/er"):
            storage.create(path, b"")
        assert (storage.list("i"), storage.list("i/a")) == (["a", "top"], ["deep", "x"])
        assert storage.list_after("i") == ["i/a/x"]

    def test_list_after_is_string_order(self, storage: Storage) -> None:
        # An inner function, because hypothesis wants one class a test and this one is inherited by several.
        @settings(max_examples=30, deadline=None)
        @given(names=st.sets(_two_level, max_size=8), after=st.one_of(st.just(""), _names, _two_level))
        def check(names: set[str], after: str) -> None:
            folder = f"x{secrets.token_hex(8)}"
            for name in names:
                storage.create(f"{folder}/{name}", b"")
            for each in {after, *names}:
                assert storage.list_after(folder, each) == [f"{folder}/{n}" for n in sorted(names) if n > each]

        check()

    def test_listing_shows_what_others_published_since(self, storage: Storage, reopen: Callable[[], Storage]) -> None:
        other = reopen()
        for number in range(3):
            assert len(storage.list_after("i")) == len(storage.list("i/s")) == number
            other.create(f"i/s/{number}", b"")
        assert storage.list_after("i", "s/1") == ["i/s/2"]

    def test_a_listing_first_flushes_the_writers(self, storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
        def broken() -> None:
            raise OSError("broken")

        ends = [register_flush(storage.url, broken)]
        ends.append(register_flush(storage.url + "/", lambda: storage.replace("i/s/1", b"")))
        ends.append(register_flush(storage.url + "-other", lambda: pytest.fail("not this run's")))
        assert storage.list_after("i") == ["i/s/1"]
        assert "failed to flush" in caplog.text
        storage.remove("i/s/1")
        for end in ends * 2:
            end()
        assert storage.list_after("i") == []

    def test_a_flush_may_use_the_registry(self, storage: Storage) -> None:
        end = register_flush(storage.url, lambda: register_flush(storage.url, int)())
        assert storage.list_after("i") == []
        end()

    def test_a_forked_child_does_not_flush(self, storage: Storage) -> None:
        end = register_flush(storage.url, lambda: os._exit(9))
        assert _in_child(lambda: storage.list_after("i")) == 0
        end()

    def test_a_sink_appears_when_published(self, storage: Storage, reopen: Callable[[], Storage]) -> None:
        table = pa.table({"x": range(1000)})
        sink = storage.sink("t/s/1.parquet")
        with pq.ParquetWriter(sink.file, table.schema) as writer:
            writer.write_table(table)
            assert reopen().list_after("t") == reopen().list("t/s") == []
        sink.publish()
        sink.abort()
        assert reopen().list_after("t") == ["t/s/1.parquet"]
        assert pq.read_table(pa.BufferReader(storage.read("t/s/1.parquet"))) == table

    def test_a_sink_never_overwrites(self, storage: Storage) -> None:
        sinks = [storage.sink("t/1"), storage.sink("t/1")]
        for number, sink in enumerate(sinks):
            sink.file.write(bytes([number]))
        sinks[1].publish()
        with pytest.raises(AlreadyPublished):
            sinks[0].publish()
        sinks[0].abort()
        assert (storage.read("t/1"), storage.list("t")) == (b"\x01", ["1"])

    def test_an_aborted_sink_leaves_nothing(self, storage: Storage) -> None:
        sink = storage.sink("t/1")
        sink.file.write(b"half")
        sink.abort()
        sink.abort()
        assert storage.list("t") == []

    def test_duckdb_reads_its_files(self, storage: Storage) -> None:
        import duckdb

        paths = [f"tensors/mode=TRAIN/{n}.parquet" for n in range(4)]
        for number, path in enumerate(paths):
            sink = storage.sink(path)
            pq.write_table(pa.table({"x": pa.array([number] * 50_000)}), sink.file, row_group_size=5000)
            sink.publish()
        files = RunFiles([storage])
        with duckdb.connect() as connection:
            connection.register_filesystem(files.filesystem)
            query = "SELECT sum(x), count(*) FROM read_parquet($paths, hive_partitioning = false)"
            for _ in range(3):
                found = connection.execute(query, {"paths": [files.uri(storage, path) for path in paths]}).fetchall()
                assert found == [(300_000, 200_000)]

    def test_duckdb_takes_names_as_they_are(self, storage: Storage) -> None:
        import duckdb

        for number, path in enumerate(["index/lr=[0.1]*/a?.parquet", "index/lr=0/ab.parquet"]):
            sink = storage.sink(path)
            pq.write_table(pa.table({"x": [number]}), sink.file)
            sink.publish()
        files = RunFiles([storage])
        with duckdb.connect() as connection:
            connection.register_filesystem(files.filesystem)
            uris = [files.uri(storage, "index/lr=[0.1]*/a?.parquet")]
            assert connection.execute("SELECT x FROM read_parquet($files)", {"files": uris}).fetchall() == [(0,)]

    def test_a_forked_child_opens_its_own(self, storage: Storage) -> None:
        storage.create("a/1", b"parent")

        def child() -> None:
            assert storage.read("a/1") == b"parent"
            assert storage.read_ranges([ByteRange("a/1", 1, 2)]) == [b"ar"]
            assert storage.list("a") == ["1"]
            storage.create("a/2", b"child")

        assert _in_child(child) == 0
        assert storage.read("a/1") == b"parent"

    def test_threads_may_share_it(self, storage: Storage) -> None:
        def work(number: int) -> None:
            for turn in range(5):
                storage.create(f"a/{number}/{turn}", bytes([number]) * 100)
                assert storage.read_ranges([ByteRange(f"a/{number}/{turn}", 10, 5)]) == [bytes([number]) * 5]

        with ThreadPoolExecutor(8) as pool:
            [*pool.map(work, range(8))]
        assert len(storage.list_after("a")) == 40

    @pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a//b", "a/.", "", "a\0b", "a/"])
    def test_no_path_leads_out_of_the_run(self, storage: Storage, path: str) -> None:
        files = RunFiles([storage])
        for act in (storage.read, storage.remove, partial(files.uri, storage), storage.sink, storage.list_after):
            with pytest.raises(ValueError, match="not a path inside a run"):
                act(path)
        for write in (storage.create, storage.replace):
            with pytest.raises(ValueError, match="not a path inside a run"):
                write(path, b"")
        with pytest.raises(ValueError, match="not a path inside a run"):
            storage.read_ranges([ByteRange(path, 0, 1)])


class TestLocal(StorageContract):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], Storage]:
        return lambda: open_storage(tmp_path / "runs" / "a")

    def test_all_spellings_of_a_folder_are_one_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "link").symlink_to(tmp_path / "run")
        wanted = str(tmp_path / "run")
        for spelling in ("run", "./run/", f"file://{wanted}/", wanted, tmp_path / "x" / ".." / "run"):
            storage = open_storage(spelling)
            assert storage.url == canonical_url(spelling) == wanted
            assert storage.is_local
        called: list[int] = []
        end = register_flush("link", lambda: called.append(1))
        open_storage("run").list_after("index")
        end()
        assert called == [1]

    def test_a_folder_in_place_of_a_file_is_named_as_damage(self, storage: Storage) -> None:
        storage.create("a/b", b"1")
        with pytest.raises(CorruptFile, match="a: it is a folder") as caught:
            storage.read("a")
        assert caught.value.path == "a"

    def test_no_temporary_file_stays(self, tmp_path: Path, storage: Storage) -> None:
        storage.create("a/1", b"1")
        storage.replace("a/1", b"2")
        with pytest.raises(AlreadyPublished):
            storage.create("a/1", b"3")
        assert [each.name for each in (tmp_path / "runs/a/a").iterdir()] == ["1"]

    def test_a_file_in_place_of_the_run_is_no_run(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("not a folder")
        storage = open_storage(tmp_path / "file")
        assert storage.exists_any()
        assert storage.list("") == storage.list_after("index") == []
        with pytest.raises(StorageError, match="Not a directory"):
            storage.create("run.json", b"")

    def test_create_without_hard_links(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_link(*_: object) -> None:
            raise OSError(errno.EOPNOTSUPP, "no links here")

        monkeypatch.setattr(os, "link", no_link)
        self.test_create_never_overwrites(storage)
        assert storage.list("a") == ["b''", "b'first'"]

    def test_descriptors_are_bounded_and_never_closed_under_a_reader(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(open_files, "_OPEN_FILES", 3)
        for number in range(20):
            storage.create(f"v/{number}", bytes([number]) * 4096)
        before = len(os.listdir("/proc/self/fd"))

        def read(seed: int) -> None:
            for turn in range(2000):
                number = (turn * 7 + seed * 3) % 20
                assert storage.read_ranges([ByteRange(f"v/{number}", 96, 4000)]) == [bytes([number]) * 4000]

        with ThreadPoolExecutor(8) as pool:
            [*pool.map(read, range(8))]
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before + 3

    def test_a_process_short_of_descriptors_closes_its_own(self, tmp_path: Path, storage: Storage) -> None:
        import resource

        for number in range(40):
            storage.create(f"v/{number}", bytes([number]))
        code = """
import resource, sys
from tensortrial.storage.open import ByteRange, open_storage
storage = open_storage(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
for number in [*range(40)] * 2:
    assert storage.read_ranges([ByteRange(f"v/{number}", 0, 1)]) == [bytes([number])]
"""
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 24
        subprocess.run([sys.executable, "-c", code, storage.url], check=True)

    def test_a_full_disk_says_so_and_leaves_nothing(self, small_disk: Path) -> None:
        storage = open_storage(small_disk / "run")
        for write in (storage.create, storage.replace):
            with pytest.raises(StorageError, match="the disk is full") as caught:
                write("a/1", bytes(2 << 20))
            assert caught.value.errno == errno.ENOSPC
            assert caught.value.path == "a/1"
        sink = storage.sink("a/2")
        with pytest.raises(OSError):
            sink.file.write(bytes(2 << 20))
        sink.abort()
        assert [*(small_disk / "run" / "a").iterdir()] == []
        storage.create("a/1", b"small")

    @pytest.fixture
    def small_disk(self, tmp_path: Path) -> Iterator[Path]:
        folder = tmp_path / "disk"
        folder.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
        if mounted.returncode:
            pytest.skip("mounting a tmpfs is not permitted here")
        yield folder
        subprocess.run(["umount", folder], check=True)

    def test_neither_fsspec_nor_pyarrow_is_imported(self, tmp_path: Path) -> None:
        code = """
import sys
from tensortrial.storage.open import open_storage
storage = open_storage(sys.argv[1])
storage.create("a/b/c", b"")
assert storage.list_after("a") == ["a/b/c"]
print([name for name in ("fsspec", "pyarrow", "s3fs", "duckdb", "asyncio") if name in sys.modules])
"""
        done = subprocess.run([sys.executable, "-c", code, tmp_path], check=True, capture_output=True, text=True)
        assert done.stdout == "[]\n"


class TestMemory(StorageContract):
    @pytest.fixture
    def reopen(self) -> Callable[[], Storage]:
        name = f"memory://{secrets.token_hex(8)}/run"
        return lambda: open_storage(name)


def test_credentials_in_a_url_of_s3_are_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="must not contain credentials") as caught:
        open_storage("s3://KEY:hunter2@bucket/run")
    assert "hunter2" not in str(caught.value)


def test_an_error_of_the_file_system_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=rf"run.json: cannot write \({tmp_path}/file"):
        open_storage(tmp_path / "file").create("run.json", b"")


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
    def requests(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Collect the names of the requests."""
        from fsspec.asyn import sync

        made: list[str] = []
        call = storage.fs._call_s3

        async def counted(method: str, *args: Any, **kwargs: Any) -> Any:
            made.append(method)
            return await call(method, *args, **kwargs)

        filesystem = storage.fs
        monkeypatch.setattr(filesystem, "_call_s3", counted)
        monkeypatch.setattr(filesystem, "call_s3", functools.partial(sync, filesystem.loop, counted))
        return made

    def test_each_thing_is_one_request(self, storage: Storage, requests: list[str]) -> None:
        storage.create("i/s/1", b"hello")
        assert requests == ["put_object"]
        for act in (
            lambda: storage.read("i/s/1"),
            lambda: storage.read_tail("i/s/1", 3),
            lambda: storage.read_ranges([ByteRange("i/s/1", 0, 2), ByteRange("i/s/1", 3, 1)]),
        ):
            requests.clear()
            act()
            assert requests == ["get_object"]
        for act in (lambda: storage.list_after("i", "s/1"), storage.exists_any, lambda: storage.list("i")):
            requests.clear()
            act()
            assert requests == ["list_objects_v2"]

    def test_the_whole_bucket_may_be_the_run(self, server: ObjectStore, bucket: str) -> None:
        storage = open_storage(bucket, server.storage_options)
        assert storage.url == bucket
        assert not storage.exists_any()
        storage.create("run.json", b"{}")
        storage.create("i/s/1", b"{}")
        assert storage.exists_any()
        assert storage.list("") == ["i", "run.json"]
        assert storage.list_after("i") == ["i/s/1"]

    def test_listings_of_several_pages(self, storage: Storage) -> None:
        with ThreadPoolExecutor(16) as pool:
            [*pool.map(lambda number: storage.create(f"i/s/{number:08}", b""), range(1100))]
        assert storage.list_after("i", "s/00000002") == [f"i/s/{number:08}" for number in range(3, 1100)]
        assert len(storage.list("i/s")) == 1100

    def test_a_missing_bucket_is_named(self, server: ObjectStore) -> None:
        storage = open_storage("s3://no-such-bucket-here/run", server.storage_options)
        assert not storage.exists_any()
        assert storage.list("") == storage.list_after("i") == []
        with pytest.raises(FileNotFoundError):
            storage.read("run.json")
        with pytest.raises(StorageError, match=r"bucket does not exist.*'no-such-bucket-here', key 'run/run.json'"):
            storage.create("run.json", b"")

    def test_a_put_whose_answer_was_lost_is_still_ours(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        call, lost = storage.fs.call_s3, [True]

        def call_twice(method: str, **kwargs: Any) -> Any:
            if method == "put_object" and lost.pop():
                call(method, **kwargs)  # as s3fs and botocore do when the connection breaks before the answer
            return call(method, **kwargs)

        monkeypatch.setattr(storage.fs, "call_s3", call_twice)
        storage.create("a/1", b"once")
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


class TestOpening:
    @pytest.mark.parametrize("url", ["", b"bytes", "nosuch://x/y", "simplecache::s3://b/k", "s3://", "memory:///"])
    def test_urls_that_cannot_hold_a_run_are_refused(self, url: Any) -> None:
        with pytest.raises(ConfigurationError):
            open_storage(url)

    def test_s3_without_s3fs_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        registry = importlib.import_module("fsspec.registry")  # fsspec.registry is also a mapping's name
        monkeypatch.setitem(sys.modules, "s3fs", None)
        monkeypatch.delitem(registry._registry, "s3", raising=False)
        with pytest.raises(MissingExtra, match=r"s3fs.*tensortrial\[s3\]"):
            open_storage("s3://bucket/run")

    def test_canonical_urls(self) -> None:
        assert canonical_url("S3A://bucket/a/b//") == "s3://bucket/a/b"
        assert canonical_url("memory:///a/") == canonical_url("memory://a") == "memory://a"
        assert canonical_url("sftp://user:secret@host/a") == "sftp://host/a"

    @pytest.mark.s3
    @pytest.mark.parametrize(
        "options", [{"no_such": 1}, {"config_kwargs": {"no_such": 1}}, {"endpoint_url": "no url"}], ids=str
    )
    def test_unknown_options_are_refused(self, options: dict[str, Any]) -> None:
        storage = open_storage("s3://bucket/run", options)
        for act in (lambda: storage.read("a"), lambda: storage.create("a", b""), storage.exists_any):
            with pytest.raises(ConfigurationError, match="storage_options"):
                act()


@given(
    st.lists(st.builds(ByteRange, st.sampled_from("ab"), st.integers(0, 300), st.integers(0, 40)), max_size=12),
    st.integers(0, 30),
    st.integers(1, 100),
)
def test_merged_reads_serve_every_range(ranges: list[ByteRange], near: int, longest: int) -> None:
    files = {name: secrets.token_bytes(250) for name in "ab"}
    found = [b""] * len(ranges)
    merged = merge(ranges, near, longest)
    for read in merged:
        data = files[read.span.path][read.span.start : read.span.start + read.span.length]
        for index, part in read.cut(data):
            found[index] = part
    assert found == [files[r.path][r.start : r.start + r.length] for r in ranges]
    assert all(len(read.serves) == 1 or read.span.length <= longest for read in merged)


def test_a_folder_is_listed_again_once_it_has_changed(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    for number in range(300):  # many within one tick of the file system's clock
        storage.create(f"index/a/{number:04d}", b"")
        assert len(storage.list_after("index")) == number + 1
    os.utime(tmp_path / "index" / "a", (1_000_000, 1_000_000))
    for _ in range(2):  # the second time from memory
        assert storage.list_after("index", "a/0297") == ["index/a/0298", "index/a/0299"]
    storage.create("index/a/0300", b"")
    assert storage.list_after("index", "a/0298") == ["index/a/0299", "index/a/0300"]
    storage.remove("index/a/0299")
    assert storage.list_after("index", "a/0298") == ["index/a/0300"]
