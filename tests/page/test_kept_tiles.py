"""Tiles that are kept on disk between two servers of a run."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from support.runs import TRAIN, Job, flip
from tensortrial.errors import ConfigurationError
from tensortrial.maintenance.compaction import compact
from tensortrial.pages.grid import Grid
from tensortrial.pages.kept_tiles import KeptTiles, kept_tiles
from tensortrial.pages.open_run import OpenRun
from tensortrial.pages.tiles import Choice, Tiles
from tensortrial.read.opening import create_trial
from tensortrial.read.trial import run_reader_of

FILES = {"index/a.parquet": 2**63 + 5, "index/b.parquet": 7}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for tiles, in which even those of a small run are kept: all that is measured takes a second."""
    monkeypatch.setenv("TENSORTRIAL_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(time, "perf_counter", itertools.count().__next__)
    return tmp_path / "kept"


def write(out: Path, steps: int, scale: float = 1.0) -> None:
    job = Job(out)
    for number in range(steps):
        job.publish({"x": np.array([scale * number])}, TRAIN)
    job.close()


def values(out: Path) -> list[float]:
    with create_trial(out) as trial:
        grid = OpenRun(trial).grid("value", "TRAIN", "", (None, None), 100)
    return grid.most[0].tolist()  # type: ignore[no-any-return]


def rows_read(out: Path) -> int:
    """Return of how many index files a server that starts now reads the rows, for the tiles of `values`.

    DuckDB opens them, so that no event of the interpreter shows it.
    """
    with create_trial(out) as trial:
        reader = run_reader_of(trial)
        index = reader.sources
        tiles = Tiles(reader, index, trial.tensor_names, kept_tiles(trial.info.id, reader.storage.url))
        end = trial.steps(TRAIN)[-1] + 1
        with mock.patch.object(index, "readable_index", wraps=index.readable_index) as readable:
            tiles.grid(Choice("scalar", "TRAIN"), 0, end, 100, end - 1)
    return sum(len(call.args[0]) for call in readable.call_args_list)


def grid_of(value: float, rows: int = 2) -> Grid:
    grid = Grid.empty(4, [f"näme {i}\n" for i in range(rows)], 3, 5)
    for each in grid.arrays:
        each[:] = value
    return grid


def test_a_second_server_reads_no_row_again(tmp_path: Path, kept: Path) -> None:
    write(tmp_path / "run", 4)
    before = sorted(tmp_path.joinpath("run").rglob("*"))
    assert values(tmp_path / "run") == [0, 1, 2, 3]
    assert rows_read(tmp_path / "run") == 0
    assert values(tmp_path / "run") == [0, 1, 2, 3]
    assert sorted(tmp_path.joinpath("run").rglob("*")) == before
    assert [path.suffix for path in kept.iterdir()] == [".tiles"]


def test_a_run_that_has_grown_is_read_from_where_it_was_kept(tmp_path: Path, kept: Path) -> None:
    job = Job(tmp_path / "run")
    for number in range(3):
        job.publish({"x": np.array([float(number)])}, TRAIN)
    assert values(tmp_path / "run") == [0, 1, 2]
    job.step({"x": np.array([9.0])}, TRAIN)
    job.close()
    assert rows_read(tmp_path / "run") == 1
    assert values(tmp_path / "run") == [0, 1, 2, 9]


def test_another_run_at_the_same_path_is_read(tmp_path: Path, kept: Path) -> None:
    write(tmp_path / "run", 3)
    assert values(tmp_path / "run") == [0, 1, 2]
    shutil.rmtree(tmp_path / "run")
    write(tmp_path / "run", 3, scale=10)
    assert values(tmp_path / "run") == [0, 10, 20]


def test_a_copy_that_went_on_by_itself_is_read(tmp_path: Path, kept: Path) -> None:
    write(tmp_path / "run", 2)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    for folder, value in (("run", 5.0), ("copy", 6.0)):
        job = Job(tmp_path / folder, resume=True)
        job.step({"x": np.array([value])}, TRAIN)
        job.close()
        assert values(tmp_path / folder) == [0, 1, value]
    assert values(tmp_path / "run") == [0, 1, 5]


def test_a_damaged_copy_of_a_run_that_was_shown_is_damaged(tmp_path: Path, kept: Path) -> None:
    job = Job(tmp_path / "run")
    for _ in range(3):
        job.publish({"x": np.ones(1)} | {f"layer {i}": np.ones(1) for i in range(3000)}, TRAIN)
    job.close()
    assert values(tmp_path / "run") == [1, 1, 1]
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    path = sorted(tmp_path.glob("copy/index/**/*.parquet"))[1]
    flip(path, 40)  # a row; the footer stays as it was
    assert values(tmp_path / "copy") == [1, -np.inf, 1]


def test_a_run_that_was_compacted_is_read_again(tmp_path: Path, kept: Path) -> None:
    write(tmp_path / "run", 4)
    values(tmp_path / "run")
    compact(tmp_path / "run", delete_older_than=0)
    assert rows_read(tmp_path / "run") == 1
    assert values(tmp_path / "run") == [0, 1, 2, 3]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "foreign", "folder"])
def test_damaged_tiles_are_made_again(tmp_path: Path, kept: Path, damage: str) -> None:
    write(tmp_path / "run", 3)
    values(tmp_path / "run")
    (file,) = kept.iterdir()
    data = file.read_bytes()
    if damage == "folder":
        file.unlink()
        file.mkdir()
    else:
        flipped = bytearray(data)
        flipped[-20] ^= 1  # of the last array
        contents = {"truncated": data[:-9], "flipped": bytes(flipped), "empty": b"", "foreign": b"PK" * 400}
        file.write_bytes(contents[damage])
    assert rows_read(tmp_path / "run") == 3
    assert values(tmp_path / "run") == [0, 1, 2]
    if damage != "folder":
        assert file.read_bytes() == data


def test_a_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TENSORTRIAL_CACHE", str(tmp_path / "file" / "kept"))
    write(tmp_path / "run", 3)
    assert values(tmp_path / "run") == [0, 1, 2]


def test_the_least_recently_used_tiles_are_removed(tmp_path: Path) -> None:
    KeptTiles(tmp_path / "one", 10**9, "run").save("a", FILES, grid_of(1))
    (file,) = (tmp_path / "one").iterdir()
    kept = KeptTiles(tmp_path / "kept", 3 * file.stat().st_size + 10, "run")
    known: set[Path] = set()
    for i, key in enumerate("abc"):
        kept.save(key, FILES, grid_of(i))
        (new,) = set((tmp_path / "kept").iterdir()) - known
        os.utime(new, (1000 + i, 1000 + i))
        known.add(new)
    assert kept.load("a", FILES) is not None  # used last
    left = tmp_path / "kept" / ".of-a-killed-process.tmp"
    left.write_bytes(b"x")
    os.utime(left, (999, 999))
    kept.save("d", FILES, grid_of(3))
    assert [key for key in "abcd" if kept.load(key, FILES)] == ["a", "c", "d"]
    assert not left.exists()


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    kept = KeptTiles(tmp_path, 10**9, "run")
    saved = grid_of(2.0)
    saved.least[:] = np.inf
    kept.save("key", FILES, saved)
    found = kept.load("key", {**FILES, "index/c.parquet": 1})
    assert found is not None
    paths, grid = found
    assert paths == set(FILES)
    assert (grid.names, grid.width, grid.start) == (saved.names, saved.width, saved.start)
    assert all(np.array_equal(a, b) for a, b in zip(grid.arrays, saved.arrays, strict=True))
    assert kept.load("other", FILES) is None
    assert kept.load("key", {**FILES, "index/b.parquet": 8}) is None
    assert kept.load("key", {"index/a.parquet": FILES["index/a.parquet"]}) is None
    assert KeptTiles(tmp_path, 10**9, "another").load("key", FILES) is None


def test_two_servers_at_once_leave_whole_tiles(tmp_path: Path) -> None:
    found: list[bool] = []

    def work(value: float) -> None:
        kept = KeptTiles(tmp_path, 10**9, "run")
        for _ in range(40):
            kept.save("key", FILES, grid_of(value, 300))
            loaded = kept.load("key", FILES)
            found.append(loaded is not None and len({each.flat[0] for each in loaded[1].arrays[:3]}) == 1)

    threads = [threading.Thread(target=work, args=(value,)) for value in (1.0, 2.0, 3.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 120
    assert [path.suffix for path in tmp_path.iterdir()] == [".tiles"]


def test_the_environment_chooses_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("off", "No"):
        monkeypatch.setenv("TENSORTRIAL_CACHE", word)
        assert kept_tiles("run", "/run") is None
    monkeypatch.setenv("TENSORTRIAL_CACHE", "on")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    chosen = kept_tiles("run", "/run")
    assert chosen is not None
    chosen.save("key", FILES, grid_of(1))
    assert [path.suffix for path in (tmp_path / "tensortrial" / "tiles").iterdir()] == [".tiles"]
    monkeypatch.setenv("TENSORTRIAL_CACHE_MB", "2 GB")
    with pytest.raises(
        ConfigurationError, match="TENSORTRIAL_CACHE_MB must be a whole number of megabytes, got '2 GB'"
    ):
        kept_tiles("run", "/run")
