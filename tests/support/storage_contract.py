"""The contract of every kind of storage, subclassed for each of them."""

from __future__ import annotations

import functools
import os
import secrets
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.limits import set_limits
from tensortrial.engines.duckdb import RunFiles
from tensortrial.errors import AlreadyPublished, CorruptFile
from tensortrial.format.index_writer import sealed_parquet
from tensortrial.storage.open import ByteRange, Storage, register_flush

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


def publish(storage: Storage, path: str, table: pa.Table) -> None:
    """Write a table as a Parquet file of a run."""
    sink = storage.sink(path)
    with sealed_parquet(sink, table.schema) as writer:
        writer.write_table(table, row_group_size=5000)
    sink.publish()


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
        assert storage.read_document("t/empty") == b""
        assert storage.read_document("t/short", 3) == b"abc"
        with pytest.raises(CorruptFile, match="t/short: it has more than 2 bytes"):
            storage.read_document("t/short", 2)
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

    def test_long_ranges_are_read_in_pieces(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        set_limits(monkeypatch, bytes_of_one_request=10, bytes_requested_at_once=25)
        data = secrets.token_bytes(100)
        storage.create("v/a", data)
        ranges = [ByteRange("v/a", start, length) for start, length in ((3, 95), (50, 3), (80, 45), (0, 0), (20, 20))]
        buffers = [np.zeros(length, np.uint8) for _, _, length in ranges]
        expected = [data[start : start + length] for _, start, length in ranges]
        assert storage.read_into(ranges, buffers) == [len(each) for each in expected]
        assert [bytes(buffer[: len(each)]) for buffer, each in zip(buffers, expected, strict=True)] == expected

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
            publish(storage, path, pa.table({"x": pa.array([number] * 50_000)}))
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
            publish(storage, path, pa.table({"x": [number]}))
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
