"""Large writes that bypass the page cache: what they write, when they are chosen, and where they are not possible."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.plain_hook import Hook
from tensortrial import create_trial
from tensortrial.errors import StorageError
from tensortrial.storage.direct_write import DIRECT_VARIABLE, PART_BYTES, Cost, IdleTime, LargeWrites, WriteChoice
from tensortrial.storage.open import open_storage, translated

pytestmark = pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system has no direct writes")

BLOCK = 4096


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECT_VARIABLE, "1")


def write(path: Path, calls: list[list[bytes | memoryview]], writes: LargeWrites, read_soon: bool = False) -> None:
    with open(path, "wb", buffering=0) as file:
        for pieces in calls:
            writes.append(file.fileno(), pieces, read_soon)


def pieces_of(*sizes: int) -> list[bytes | memoryview]:
    """Return pieces of these sizes, with bytes that are nowhere the same."""
    data = memoryview(np.arange(sum(sizes) // 4 + 1, dtype=np.uint32)).cast("B")
    ends = np.cumsum(sizes).tolist()
    return [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def cached_share(path: Path) -> float:
    """Return which part of a file's pages are in the page cache."""
    library = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        resident = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        if library.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), resident):
            raise OSError(ctypes.get_errno(), "mincore")
    return sum(each & 1 for each in resident) / len(resident)


@pytest.fixture
def bypassed(tmp_path: Path, always: None) -> None:
    """Skip where a direct write goes through the page cache nevertheless, as in a file system in memory."""
    write(tmp_path / "probe", [pieces_of(PART_BYTES)], LargeWrites())
    if cached_share(tmp_path / "probe") > 0.5:
        pytest.skip("this file system has no direct writes")


SIZES = st.lists(
    st.one_of(st.integers(0, 20), st.sampled_from([BLOCK - 1, BLOCK, 70_000, 1 << 20, PART_BYTES, PART_BYTES + 1])),
    max_size=6,
)


@pytest.mark.parametrize("choice", ["0", "1", "auto"])
@given(calls=st.lists(SIZES, min_size=1, max_size=3))
@settings(max_examples=12, deadline=None)
def test_files_hold_the_pieces_in_their_order(
    tmp_path_factory: pytest.TempPathFactory, choice: str, calls: list[list[int]]
) -> None:
    path = tmp_path_factory.mktemp("files") / "file"
    pieces = [pieces_of(*sizes) for sizes in calls]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DIRECT_VARIABLE, choice)
        write(path, pieces, LargeWrites())
    assert path.read_bytes() == b"".join(piece for call in pieces for piece in call)


@pytest.mark.usefixtures("bypassed")
class TestThePageCache:
    def test_does_not_get_large_parts_that_are_written_directly(self, tmp_path: Path) -> None:
        write(tmp_path / "file", [pieces_of(100), pieces_of(5, 3 * PART_BYTES, 7)], LargeWrites())
        assert cached_share(tmp_path / "file") < 0.01

    def test_gets_small_writes(self, tmp_path: Path) -> None:
        write(tmp_path / "file", [pieces_of(PART_BYTES // 2)] * 4, LargeWrites())
        assert cached_share(tmp_path / "file") == 1

    def test_gets_everything_where_direct_writes_are_turned_off(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(DIRECT_VARIABLE, "0")
        write(tmp_path / "file", [pieces_of(3 * PART_BYTES)], LargeWrites())
        assert cached_share(tmp_path / "file") == 1

    def test_gets_what_is_read_soon(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(DIRECT_VARIABLE, "auto")
        write(tmp_path / "file", [pieces_of(3 * PART_BYTES)] * 2, LargeWrites(), read_soon=True)
        assert cached_share(tmp_path / "file") == 1

    @pytest.mark.parametrize("reads", [False, True])
    def test_gets_the_values_of_a_run_that_its_own_process_reads(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: bool
    ) -> None:
        def prefer_direct(choice: WriteChoice, idle_seconds_per_byte: float) -> bool:
            return True  # whatever this machine prefers today

        monkeypatch.setenv(DIRECT_VARIABLE, "auto")
        monkeypatch.setattr(WriteChoice, "next_is_direct", prefer_direct)
        hook = Hook(str(tmp_path / "run"))
        with hook.step():
            hook.save_scalar("loss", 1.0)
        hook.close() if not reads else create_trial(str(tmp_path / "run")).steps()
        if not reads:
            hook = Hook(str(tmp_path / "run"), resume=True)
        with hook.step():
            hook.save_tensor("w", np.ones(2 * PART_BYTES, np.float32))
        hook.close()
        (chunk,) = (tmp_path / "run" / "tensors").rglob("*.parquet")
        assert (cached_share(chunk) > 0.99) is reads


@pytest.mark.usefixtures("always")
class TestARun:
    def test_reads_the_same_after_direct_writes(self, tmp_path: Path) -> None:
        run = str(tmp_path / "run")
        values = [np.random.default_rng(step).standard_normal((3, 1_000_000)) for step in range(4)]
        hook = Hook(run)
        for value in values:
            with hook.step():
                hook.save_tensor("large", value)
                for number in range(50):
                    hook.save_tensor(f"small_{number}", value[0, number * 1000 : (number + 1) * 1000])
        hook.close()
        trial = create_trial(run)
        for step, value in enumerate(values):
            np.testing.assert_array_equal(trial.tensor("large").value(step), value)
            np.testing.assert_array_equal(trial.tensor("small_49").value(step), value[0, 49_000:50_000])
        assert trial.verify().is_whole

    def test_is_durable_with_direct_writes(self, tmp_path: Path) -> None:
        hook = Hook(str(tmp_path / "run"), durable=True)
        with hook.step():
            hook.save_tensor("w", np.ones(PART_BYTES, np.float32))
        hook.close()
        assert create_trial(str(tmp_path / "run")).tensor("w").value(0).sum() == PART_BYTES

    def test_of_two_threads_is_written_at_the_same_time(self, tmp_path: Path) -> None:
        writes, pieces = LargeWrites(), pieces_of(3, PART_BYTES, 2 * PART_BYTES)
        paths = [tmp_path / str(number) for number in range(4)]
        threads = [threading.Thread(target=write, args=(path, [pieces] * 3, writes)) for path in paths]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {path.read_bytes() for path in paths} == {b"".join(pieces) * 3}

    def test_of_a_forked_child_is_not_disturbed(self, tmp_path: Path) -> None:
        program = (
            "import os, sys, numpy as np\n"
            "from tensortrial import Run\n"
            "with Run(sys.argv[1]) as run:\n"
            "    for step in range(5):\n"
            "        run.save_tensor('w', np.full(3_000_000, step, np.float32), step=step)\n"
            "        if os.fork() == 0:\n"
            "            os._exit(0)\n"
            "        os.wait()\n"
        )
        subprocess.run([sys.executable, "-W", "ignore", "-c", program, tmp_path / "run"], check=True)
        tensor = create_trial(str(tmp_path / "run")).tensor("w")
        assert [set(tensor.value(step).tolist()) for step in range(5)] == [{float(step)} for step in range(5)]


class TestAFileSystem:
    @pytest.fixture
    def mounted(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
        folder = tmp_path / "mounted"
        folder.mkdir()
        kind, *options = request.param
        if subprocess.run(["mount", "-t", kind, *options, kind, folder], capture_output=True).returncode:
            pytest.skip("mounting is not permitted here")
        yield folder
        subprocess.run(["umount", "-l", folder], check=True)

    # A ramfs refuses O_DIRECT.
    @pytest.mark.parametrize("mounted", [("ramfs",), ("tmpfs", "-o", "size=64m")], indirect=True)
    @pytest.mark.parametrize("choice", ["1", "auto"])
    def test_that_refuses_direct_writes_gets_others(
        self, mounted: Path, choice: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(DIRECT_VARIABLE, choice)
        pieces = pieces_of(11, PART_BYTES, PART_BYTES, 5)
        write(mounted / "file", [pieces, pieces], LargeWrites())
        assert (mounted / "file").read_bytes() == b"".join(pieces) * 2

    @pytest.mark.usefixtures("always")
    @pytest.mark.parametrize("mounted", [("tmpfs", "-o", "size=6m")], indirect=True)
    def test_that_is_full_is_named(self, mounted: Path) -> None:
        sink = open_storage(mounted).sink("tensors/file")
        with pytest.raises(StorageError, match="the disk is full"), translated("tensors/file", "write"):
            sink.append(pieces_of(3 * PART_BYTES))
        sink.abort()
        assert list((mounted / "tensors").iterdir()) == []


class TestTheChoice:
    def settled(self, cached: tuple[float, float], direct: tuple[float, float], idle: float = 0.0) -> list[bool]:
        """Return what is chosen for a thousand parts of these costs: CPU and clock, in nanoseconds a byte."""
        choice, chosen = WriteChoice(), []
        for _ in range(1000):
            is_direct = choice.next_is_direct(idle)
            chosen.append(is_direct)
            choice.add(is_direct, Cost(*(direct if is_direct else cached)))
        return chosen

    def test_is_direct_where_fresh_pages_are_dear(self) -> None:
        chosen = self.settled(cached=(4.0, 4.0), direct=(0.2, 0.6))
        assert chosen[:2] == [False, True]
        assert sum(chosen) > 970

    def test_is_the_page_cache_where_pages_are_cheap(self) -> None:
        assert sum(self.settled(cached=(0.36, 0.36), direct=(0.2, 0.6))) < 30

    def test_is_the_page_cache_on_a_slow_disk(self) -> None:
        assert sum(self.settled(cached=(4.0, 20.0), direct=(0.2, 10.0))) < 30

    def test_is_direct_on_a_slow_disk_while_the_thread_is_idle_longer(self) -> None:
        assert sum(self.settled(cached=(4.0, 4.0), direct=(0.2, 10.0), idle=8.0)) > 970

    def test_follows_a_machine_that_changes(self) -> None:
        choice = WriteChoice()
        chosen = []
        for cached in [4.0] * 500 + [0.3] * 1000:
            is_direct = choice.next_is_direct(0.0)
            chosen.append(is_direct)
            choice.add(is_direct, Cost(0.2, 0.6) if is_direct else Cost(cached, cached))
        assert sum(chosen[:500]) > 470
        assert sum(chosen[-250:]) < 10

    def test_idle_time_is_that_of_the_thread_that_waited(self) -> None:
        idle = IdleTime()
        assert idle.begin() == 0
        idle.end()
        threading.Event().wait(0.05)
        assert idle.begin() >= 0.04
        found: list[float] = []
        thread = threading.Thread(target=lambda: found.append(idle.begin()))
        thread.start()
        thread.join()
        assert found == [0.0]
