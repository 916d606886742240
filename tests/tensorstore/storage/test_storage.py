"""The contract of local and in-memory storage, what only they can do wrong, and how a storage is opened."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import secrets
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from support.limits import set_limits
from support.missing import without
from support.storage_contract import StorageContract
from support.waiting import wait_until
from tensortrial.errors import AlreadyPublished, ConfigurationError, CorruptFile, MissingExtra, StorageError
from tensortrial.storage.open import ByteRange, Storage, canonical_url, open_storage, register_flush
from tensortrial.storage.ranges import merge


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
        """Only an administrator can mount a file system without links."""

        def no_link(*_: object) -> None:
            raise OSError(errno.EOPNOTSUPP, "no links here")

        monkeypatch.setattr(os, "link", no_link)
        self.test_create_never_overwrites(storage)
        assert storage.list("a") == ["b''", "b'first'"]

    def test_descriptors_are_bounded_and_never_closed_under_a_reader(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_limits(monkeypatch, open_files=3)
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
                write("a/1", bytes(4 << 20))
            assert caught.value.errno == errno.ENOSPC
            assert caught.value.path == "a/1"
        sink = storage.sink("a/2")
        with pytest.raises(OSError):
            sink.file.write(bytes(4 << 20))
        sink.abort()
        assert [*(small_disk / "run" / "a").iterdir()] == []
        storage.create("a/1", b"small")

    def test_a_disk_without_free_inodes_is_not_called_full(self, small_disk: Path) -> None:
        remounted = subprocess.run(["mount", "-o", "remount,nr_inodes=4", small_disk], capture_output=True)
        if remounted.returncode:
            pytest.skip("remounting a tmpfs is not permitted here")
        storage = open_storage(small_disk)
        with suppress(StorageError):  # some kernels count a hard link as an inode
            for number in range(4):
                storage.create(f"a/{number}", b"small")
        for path in ("a/4", "b/0"):
            with pytest.raises(StorageError, match="no free inode") as caught:
                storage.create(path, b"small")
            assert caught.value.errno == errno.ENOSPC

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


def test_an_unreachable_web_server_is_not_taken_for_an_object_store() -> None:
    pytest.importorskip("aiohttp")
    storage = open_storage("http://127.0.0.1:9/run")
    with pytest.raises(StorageError, match=r"the server cannot be reached.*; is its address right"):
        storage.read("a")


class TestOpening:
    @pytest.mark.parametrize(
        "url", ["", b"bytes", None, 5, "a\0b", "nosuch://x/y", "simplecache::s3://b/k", "s3://", "memory:///"]
    )
    def test_urls_that_cannot_hold_a_run_are_refused(self, url: Any) -> None:
        with pytest.raises(ConfigurationError):
            open_storage(url)

    def test_options_that_are_no_mapping_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="storage_options must be a mapping, got int"):
            open_storage("run", 5)
        with pytest.raises(ConfigurationError, match="does not take these storage_options: 'int' object"):
            open_storage("s3://bucket/run", {"config_kwargs": 5})
        with pytest.raises(ConfigurationError, match=r"does not take these storage_options: .* 'endpoint_url'"):
            open_storage("http://127.0.0.1/run", {"endpoint_url": "http://127.0.0.1"}).read("run.json")

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"token": 1}, ConfigurationError),
            ({"client_kwargs": {"token": 1}}, ConfigurationError),
            ({"other": "token"}, TypeError),
        ],
        ids=str,
    )
    def test_a_wrong_call_inside_a_file_system_is_blamed_on_an_option_only_if_it_names_one(
        self, options: dict[str, Any], error: type[Exception]
    ) -> None:
        class Failing(MemoryFileSystem):
            def cat_file(self, path: str, **_: Any) -> bytes:
                request: Any = canonical_url
                return bytes(request(token=path))

        fsspec.register_implementation("failing", Failing, clobber=True)
        with pytest.raises(error, match="'token'"):
            open_storage("failing://run", options).read("run.json")

    def test_s3_without_s3fs_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        registry = importlib.import_module("fsspec.registry")  # fsspec.registry is also a mapping's name
        without(monkeypatch, "s3fs")
        monkeypatch.delitem(registry._registry, "s3", raising=False)
        with pytest.raises(MissingExtra, match=r"s3fs.*tensortrial\[s3\]"):
            open_storage("s3://bucket/run")

    def test_canonical_urls(self) -> None:
        assert canonical_url("S3A://bucket/a/b//") == "s3://bucket/a/b"
        assert canonical_url("memory:///a/") == canonical_url("memory://a") == "memory://a"
        assert canonical_url("sftp://user:secret@host/a") == "sftp://host/a"

    @pytest.mark.s3
    @pytest.mark.parametrize(
        "options",
        [{"no_such": 1}, {"config_kwargs": {"no_such": 1}}, {"client_kwargs": 5}, {"endpoint_url": "no url"}],
        ids=str,
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


@pytest.fixture(params=["disk", "file server"])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is on a disk of this machine; or on a file system without a device, as those of file servers."""
    if request.param == "file server":
        monkeypatch.setattr("os.major", lambda _: 0)


@pytest.mark.usefixtures("file_system")
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


@pytest.mark.usefixtures("file_system")
def test_names_in_a_folder_are_listed_again_once_it_has_changed(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    assert storage.list("end") == []
    for number in range(300):  # many within one tick of the file system's clock
        storage.create(f"end/{number:04d}.json", b"")
        assert len(storage.list("end")) == number + 1
    os.utime(tmp_path / "end", (1_000_000, 1_000_000))
    _wait_for_a_tick(tmp_path / "end")
    storage.list("end").clear()  # the caller's own list
    assert len(storage.list("end")) == 300
    storage.replace("end/0300.json", b"")
    storage.remove("end/0000.json")
    assert storage.list("end") == [f"{number:04d}.json" for number in range(1, 301)]


@pytest.mark.usefixtures("file_system")
def test_a_file_that_appears_within_a_tick_of_the_clock_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems here have finer clocks than others."""

    def coarse(status: Callable[..., os.stat_result], *args: object, **kwargs: bool) -> SimpleNamespace:
        result = status(*args, **kwargs)
        found = {name: getattr(result, name) for name in dir(os.stat_result) if name.startswith("st_")}
        tick = found["st_ctime_ns"] // 10_000_000 * 10_000_000 + 1
        return SimpleNamespace(**{**found, "st_mtime_ns": tick, "st_ctime_ns": tick})

    storage = open_storage(tmp_path)
    for status in ("stat", "fstat"):
        monkeypatch.setattr(os, status, partial(coarse, getattr(os, status)))
    for number in range(300):
        storage.create(f"end/{number:04d}.json", b"")
        assert len(storage.list("end")) == number + 1


@pytest.mark.usefixtures("file_system")
def test_a_folder_that_replaces_another_is_listed(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "run")
    for folder, worker in (("run", "a"), ("other", "b")):
        open_storage(tmp_path / folder).create(f"index/{worker}/0", b"")
        open_storage(tmp_path / folder).create(f"end/{worker}.json", b"")
        os.utime(tmp_path / folder / "end", (1_000_000, 1_000_000))
    _wait_for_a_tick(tmp_path / "run" / "end")
    assert (storage.list("end"), storage.list_after("index")) == (["a.json"], ["index/a/0"])
    for folder in ("end", "index"):
        (tmp_path / "run" / folder).rename(tmp_path / f"old {folder}")
        (tmp_path / "other" / folder).rename(tmp_path / "run" / folder)
    assert (storage.list("end"), storage.list_after("index")) == (["b.json"], ["index/b/0"])


@pytest.mark.usefixtures("file_system")
@pytest.mark.parametrize("folder", ["end", "index", "index/a"])
def test_a_link_that_replaces_a_listed_folder_is_refused(tmp_path: Path, folder: str) -> None:
    storage = open_storage(tmp_path / "run")
    storage.create("index/a/0", b"")
    storage.create("end/a.json", b"")
    _wait_for_a_tick(tmp_path / "run" / folder)
    storage.list("end"), storage.list_after("index")
    (tmp_path / "run" / folder).rename(tmp_path / "elsewhere")
    (tmp_path / "run" / folder).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="symbolic link"):
        storage.list("end"), storage.list_after("index")


@pytest.mark.usefixtures("file_system")
@pytest.mark.parametrize("is_in_place", [True, False])
def test_a_changed_document_is_read_even_if_its_time_is_the_old_one(tmp_path: Path, is_in_place: bool) -> None:
    storage, file = open_storage(tmp_path), tmp_path / "run.json"
    for content in (b"aa", b"bb", b"cc"):
        if is_in_place:
            file.write_bytes(content)
        else:
            storage.replace("run.json", content)
        os.utime(file, (1_000_000, 1_000_000))
        assert storage.read_document("run.json") == content
        _wait_for_a_tick(file)
        for _ in range(2):  # the second time from memory
            assert storage.read_document("run.json") == content


@pytest.mark.usefixtures("file_system")
def test_a_kept_document_that_was_removed_is_missing(tmp_path: Path) -> None:
    storage, file = open_storage(tmp_path), tmp_path / "run.json"
    storage.create("run.json", b"{}")
    _wait_for_a_tick(file)
    assert storage.read_document("run.json") == b"{}"
    file.unlink()
    with pytest.raises(FileNotFoundError):
        storage.read_document("run.json")
    file.symlink_to(tmp_path / "other.json")
    with pytest.raises(StorageError, match="symbolic link"):
        storage.read_document("run.json")


def test_the_folders_and_claims_of_many_workers_are_kept_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.major", lambda _: 8)
    storage, names = open_storage(tmp_path), [f"worker_{number}" for number in range(1000)]
    for name in names:
        storage.create(f"index/{name}/0", b"")
        storage.create(f"collections/{name}", b"{}")
    _wait_for_a_tick(tmp_path / "collections" / names[-1])
    listed = []
    scandir = os.scandir
    monkeypatch.setattr("os.scandir", lambda folder: listed.append(folder) or scandir(folder))
    for _ in range(2):
        listed.clear()
        assert len(storage.list_after("index")) == 1000
        assert {storage.read_document(f"collections/{name}") for name in names} == {b"{}"}
    assert listed == []


def test_the_memory_of_a_large_document_is_freed(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    storage.create("manifest", bytes(8 << 20))
    _wait_for_a_tick(tmp_path / "manifest")
    tracemalloc.start()
    try:
        assert len(storage.read_document("manifest")) == 8 << 20
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


def _wait_for_a_tick(folder: Path) -> None:
    """Wait until the last change of a file or folder is older than a tick of the clock, so that its content is kept."""
    changed = folder.stat().st_ctime_ns
    wait_until(lambda: time.time_ns() - changed >= 200_000_000)


@pytest.mark.parametrize("url", ["s3://bucket/run", "gs://bucket/run", "file:///tmp/run"])
def test_a_url_that_a_path_has_shortened_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is a URL that pathlib.Path has shortened: pass the text .*://"):
        open_storage(Path(url))


def test_a_shortened_url_of_a_file_is_told_with_its_root(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_storage(Path(f"file://{tmp_path}"))
    assert f"pass the text file://{tmp_path}, or ./file:{tmp_path} for a folder of that name" in str(raised.value)
    assert open_storage(f"./file:{tmp_path}").url.endswith(f"/file:{tmp_path}")
