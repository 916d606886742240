"""Compaction: nothing is lost or seen twice."""

from __future__ import annotations

import errno
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

import tensortrial
from support.commands import run_command
from support.compacted_runs import assert_chunks_are_named, flush, index_files, kill, rows_of, rows_seen, write
from support.file_access import before
from support.internals import index_paths
from support.limits import set_limits
from support.runs import Job, edit_document
from support.servers import ObjectStore
from tensortrial.errors import ConfigurationError, CorruptFile, NotARun, RunNotFound, UnknownFormat
from tensortrial.format.schema import FlushRange, current_files, flush_range_of
from tensortrial.maintenance import compaction
from tensortrial.maintenance.compaction import Compaction, compact

pytestmark = pytest.mark.usefixtures("nothing_is_small")


# ------------------------------------------------------------------------------------------------------------ names


def test_the_name_of_a_file_says_what_it_holds() -> None:
    assert flush_range_of("a/00000007.parquet") == FlushRange(7, 7)
    assert flush_range_of("00000000-00000063.parquet") == FlushRange(0, 63)
    for name in ("x.parquet", "0000000a.parquet", "00000007.json", "00000007-.parquet", "a\n/7.parquet"):
        assert flush_range_of(name) is None


def test_a_file_supersedes_those_with_its_flushes_in_its_own_folder() -> None:
    names = ["s/00000000.parquet", "s/00000001.parquet", "s/00000000-00000001.parquet", "s/00000002.parquet"]
    other = ["t/00000001.parquet", "s/foreign.parquet"]
    assert current_files([*names, *other]) == ["s/00000000-00000001.parquet", "s/00000002.parquet", *reversed(other)]
    wide = "s/00000000-00004095.parquet"
    assert current_files(["s/00000000-00000063.parquet", wide]) == [wide]


# ------------------------------------------------------------------------------------------------- what is compacted


def test_an_ended_run_has_one_file_for_each_folder(tmp_path: Path) -> None:
    write(tmp_path, 100, steps_per_directory=40)
    before = rows_of(tmp_path)
    done = compact(tmp_path, delete_older_than=0)
    assert index_files(tmp_path) == [
        "00000000-00000039.parquet",
        "00000040-00000079.parquet",
        "00000080-00000099.parquet",
    ]
    assert (done.files_before, done.files_after, dict(done.damaged)) == (100, 3, {})
    assert done.bytes_after < done.bytes_before / 5
    assert done.bytes_after == sum(path.stat().st_size for path in tmp_path.glob("index/*/*/*.parquet"))
    assert rows_of(tmp_path) == before
    assert compact(tmp_path, delete_older_than=0) == Compaction(3, done.bytes_after, 3, done.bytes_after)


def test_a_negative_age_is_refused(tmp_path: Path) -> None:
    Job(tmp_path).close()
    with pytest.raises(ConfigurationError, match="delete_older_than must be a number of 0 or more, got -1"):
        compact(tmp_path, delete_older_than=-1)


def test_of_a_run_that_goes_on_only_what_is_over_is_compacted(tmp_path: Path) -> None:
    write(tmp_path, 150)
    kill(tmp_path)
    before = rows_of(tmp_path)
    compact(tmp_path, delete_older_than=0)
    blocks = ["00000000-00000063.parquet", "00000064-00000127.parquet"]
    assert index_files(tmp_path) == [*blocks, *(f"{number:08d}.parquet" for number in range(128, 150))]
    assert rows_of(tmp_path) == before


def test_a_finished_folder_is_compacted_whole(tmp_path: Path) -> None:
    write(tmp_path, 90, steps_per_directory=50)
    kill(tmp_path)
    compact(tmp_path, delete_older_than=0)
    assert index_files(tmp_path) == [
        "00000000-00000049.parquet",
        "00000050-00000063.parquet",
        *(f"{number:08d}.parquet" for number in range(64, 90)),
    ]


def test_every_worker_is_compacted(tmp_path: Path) -> None:
    jobs = [Job(tmp_path, f"worker_{rank}", 3, flush_seconds=3600) for rank in range(3)]
    for job in jobs:
        flush(job, 10)
    for job in jobs:
        job.close()
    before = rows_of(tmp_path)
    assert compact(tmp_path, delete_older_than=0).files_after == 3
    assert rows_of(tmp_path) == before


def test_a_resumed_run(tmp_path: Path) -> None:
    write(tmp_path, 30)
    compact(tmp_path, delete_older_than=0)
    write(tmp_path, 30, resume=True)
    assert index_files(tmp_path) == [
        "00000000-00000029.parquet",
        *(f"{number:08d}.parquet" for number in range(30, 60)),
    ]
    before = rows_of(tmp_path)
    assert tensortrial.create_trial(tmp_path).steps() == [*range(60)]
    compact(tmp_path, delete_older_than=0)
    assert index_files(tmp_path) == ["00000000-00000059.parquet"]
    assert rows_of(tmp_path) == before


def test_a_folder_with_too_many_rows_is_compacted_into_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, rows_of_a_compacted_file=20)
    write(tmp_path, 40)
    before = rows_of(tmp_path)
    compact(tmp_path, delete_older_than=0)
    assert index_files(tmp_path) == [f"{first:08d}-{first + 7:08d}.parquet" for first in range(0, 40, 8)]
    assert rows_of(tmp_path) == before


def test_a_compacted_file_is_sorted_for_queries_by_tensor_and_by_step(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        for _ in range(200):
            job.publish({"b": 1.0, "a": 2.0})
    compact(tmp_path, delete_older_than=0)
    (path,) = tmp_path.glob("index/*/*/*.parquet")
    table = pq.ParquetFile(path).read()
    keys = list(zip(table["name"].to_pylist(), table["global_step"].to_pylist(), strict=True))
    assert keys == sorted(keys, key=lambda key: (key[1] // 128, *key))


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let so many seconds pass for compactions, by their clock; fewer than 0 set it back."""
    now = time.time() + seconds
    monkeypatch.setattr(compaction, "time", SimpleNamespace(time=lambda: now))


def test_young_superseded_files_stay_and_the_next_compaction_deletes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 20)
    before, sizes = rows_of(tmp_path), {path: path.stat().st_size for path in tmp_path.rglob("*.parquet")}
    done = compact(tmp_path)
    assert (done.files_before, done.files_after) == (20, 1)
    assert (done.superseded_files, done.superseded_bytes) == (len(sizes), sum(sizes.values()))
    assert done.deletable_at is not None
    assert 3500 < done.deletable_at - time.time() <= 3600
    assert all(path.exists() for path in sizes)
    again = compact(tmp_path)
    assert (again.files_before, again.superseded_files, again.deletable_at) == (1, len(sizes), done.deletable_at)
    later(monkeypatch, 3601)
    old = compact(tmp_path)
    assert (old.superseded_files, old.superseded_bytes, old.deletable_at) == (0, 0, None)
    assert (done.deleted_files, again.deleted_files, old.deleted_files) == (0, 0, len(sizes))
    assert index_files(tmp_path) == ["00000000-00000019.parquet"]
    assert rows_of(tmp_path) == before
    assert_chunks_are_named(tmp_path)


def test_only_files_that_are_old_enough_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 64)
    kill(tmp_path)
    compact(tmp_path)
    later(monkeypatch, 100)
    assert len(index_files(tmp_path)) == 65
    compact(tmp_path, delete_older_than=101)
    assert len(index_files(tmp_path)) == 65
    compact(tmp_path, delete_older_than=99)
    assert len(index_files(tmp_path)) == 1


def test_a_clock_that_was_set_back_keeps_files_unless_nobody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 5)
    compact(tmp_path)
    later(monkeypatch, -1e6)
    compact(tmp_path, delete_older_than=1)
    assert len(index_files(tmp_path)) == 6
    compact(tmp_path, delete_older_than=0)
    assert index_files(tmp_path) == ["00000000-00000004.parquet"]


def test_a_half_read_answer_is_read_to_its_end(tmp_path: Path) -> None:
    write(tmp_path, 70)
    program = """
import sys, tensortrial
trial = tensortrial.create_trial(sys.argv[1])
with tensortrial.no_refresh(trial):
    answer = iter(trial.sql("select global_step, value from scalars order by 1"))
    print(next(answer), flush=True)
    sys.stdin.readline()
    print(len([*answer]), trial.tensor("loss").value(40), flush=True)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "(0, 0.0)\n"
        compact(tmp_path)
        assert reader.communicate("\n", timeout=60)[0] == "69 20.0\n"
    assert tensortrial.verify(tmp_path).is_whole


def test_compacting_a_path_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound):
        compact(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(NotARun):
        compact(tmp_path)


def test_the_command_compact(tmp_path: Path) -> None:
    write(tmp_path, 20)
    kept = shutil.copytree(tmp_path, tmp_path.with_name("kept"))
    assert re.search(
        r"\d+ superseded files of .* kept for readers; compact again in 30 min",
        run_command("compact", kept, "--delete-older-than", "30m").stdout,
    )
    done = run_command("compact", tmp_path, "--delete-older-than", "0")
    assert done.stdout.startswith("20 index files of ")
    assert re.search(r"^\d+ superseded files deleted$", done.stdout, re.MULTILINE)
    assert "kept" not in done.stdout
    assert " are now 1 of " in done.stdout
    assert done.stderr == ""  # no bar where there is no terminal


# ----------------------------------------------------------------------------------------------------------- damage


def test_a_run_with_an_unknown_codec_is_read_and_not_compacted(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=0) as job:
        job.step({"w": np.arange(3.0)})
    edit_document(tmp_path / "run.json", codec="9999")
    with pytest.raises(UnknownFormat, match="known codecs: none, lz4, zstd"):
        compact(tmp_path)
    with tensortrial.create_trial(tmp_path) as trial:
        assert trial.tensor("w").value(0).tolist() == [0, 1, 2]


@pytest.mark.parametrize("damage", ["truncated", "garbage", "rows"])
def test_a_damaged_file_is_named_and_the_rest_compacted(tmp_path: Path, damage: str) -> None:
    write(tmp_path, 20)
    bad = tmp_path / "index/worker=worker_0/step=000000000000/00000007.parquet"
    data = bad.read_bytes()
    damaged = {"truncated": data[:-50], "garbage": b"x" * 99, "rows": data[:4] + b"\xff" * 400 + data[404:]}[damage]
    bad.write_bytes(damaged)
    done = compact(tmp_path, delete_older_than=0)
    assert list(done.damaged) == [str(bad.relative_to(tmp_path))]
    assert index_files(tmp_path) == ["00000000-00000006.parquet", "00000007.parquet", "00000008-00000019.parquet"]
    assert bad.read_bytes() == damaged
    trial = tensortrial.create_trial(tmp_path)
    if damage == "rows":
        with pytest.raises(CorruptFile, match=bad.name):
            trial.tensor("loss").value(7)
    else:
        assert trial.steps() == [step for step in range(20) if step != 7]
        assert list(trial.damaged) == list(done.damaged)
    assert trial.tensor("loss").value(8) == 4


def test_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, 5)
    foreign = tmp_path / "index/worker=worker_0/step=000000000000/foreign.parquet"
    foreign.write_bytes(b"PAR1 and not")
    compact(tmp_path, delete_older_than=0)
    assert index_files(tmp_path) == ["00000000-00000004.parquet", "foreign.parquet"]
    assert tensortrial.create_trial(tmp_path).steps() == [*range(5)]


def test_a_truncated_compacted_file_leaves_the_files_that_it_supersedes(tmp_path: Path) -> None:
    write(tmp_path, 5)
    before = rows_of(tmp_path)
    bad = tmp_path / "index/worker=worker_0/step=000000000000/00000000-00000004.parquet"
    bad.write_bytes(b"PAR1 and then nothing")
    assert rows_of(tmp_path) == before
    assert list(compact(tmp_path, delete_older_than=0).damaged) == [str(bad.relative_to(tmp_path))]
    assert rows_of(tmp_path) == before
    bad.unlink()
    compact(tmp_path, delete_older_than=0)
    assert index_files(tmp_path) == [bad.name]
    assert rows_of(tmp_path) == before


def test_a_forged_compacted_file_deletes_nothing(tmp_path: Path) -> None:
    """One that claims the flushes of others, and does not hold them."""
    write(tmp_path / "a", 5)
    write(tmp_path / "b", 3)
    compact(tmp_path / "b", delete_older_than=0)
    (forged,) = (tmp_path / "b").glob("index/*/*/*.parquet")
    folder = tmp_path / "a/index/worker=worker_0/step=000000000000"
    forged.rename(folder / "00000000-00000004.parquet")
    compact(tmp_path / "a", delete_older_than=0)
    assert {"00000003.parquet", "00000004.parquet"} <= {path.name for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.s3
def test_in_an_object_store(ceph_s3: ObjectStore) -> None:
    url, options = f"{ceph_s3.new_bucket()}/run", ceph_s3.storage_options
    with Job(url, storage_options=options, flush_seconds=3600) as job:
        flush(job, 66)
        trial = tensortrial.create_trial(url, storage_options=options)
        done = compact(url, delete_older_than=0, storage_options=options)
        assert (done.files_before, done.files_after) == (66, 3)
        assert trial.tensor("w").value(5).tolist() == [5, 6, 7, 8]
        assert len(trial.tensor("loss").values()) == 66
        flush(job, 4)
        assert trial.steps(show_incomplete_steps=True) == [*range(70)]
    before = rows_of(url, storage_options=options)
    assert compact(url, delete_older_than=0, storage_options=options).files_after == 1
    assert rows_of(url, storage_options=options) == before
    assert rows_seen(trial) == before


# ------------------------------------------------------------------------------------------------------- small runs


def test_a_small_run_is_compacted_when_it_ends(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600, steps_per_directory=30) as job:
        flush(job, 50)
        trial = tensortrial.create_trial(tmp_path)
        before = rows_seen(trial)
        assert len(index_files(tmp_path)) == 50
    # What others may be reading stays.
    assert len(index_files(tmp_path)) == 52
    assert rows_seen(trial) == before
    fresh = tensortrial.create_trial(tmp_path)
    assert rows_seen(fresh) == before
    assert [path.rpartition("/")[2] for path in index_paths(fresh)] == [
        "00000000-00000029.parquet",
        "00000030-00000049.parquet",
    ]
    assert compact(tmp_path, delete_older_than=0).files_after == 2
    assert rows_seen(fresh) == rows_seen(trial) == before


def test_a_small_run_that_is_resumed(tmp_path: Path) -> None:
    for session in range(3):
        write(tmp_path, 10, resume=session > 0)
    assert index_files(tmp_path)[:2] == ["00000000-00000009.parquet", "00000000.parquet"]
    assert len(index_files(tmp_path)) == 31
    before = rows_of(tmp_path)
    assert compact(tmp_path, delete_older_than=0).files_after == 1
    assert rows_of(tmp_path) == before


def test_a_small_file_is_what_compact_would_write(tmp_path: Path) -> None:
    write(tmp_path / "a", 20)
    for path in (tmp_path / "a/index").glob("*/*/*-*.parquet"):
        at_close = pq.ParquetFile(path)
        path.unlink()
    compact(tmp_path / "a", delete_older_than=0)
    (path,) = (tmp_path / "a").glob("index/*/*/*.parquet")
    rows, expected_rows = pq.ParquetFile(path).read(), at_close.read()
    assert len(set(rows["chunk"].to_pylist())) == len(set(expected_rows["chunk"].to_pylist())) == 3  # two, and none
    assert rows.drop_columns(["chunk"]).equals(expected_rows.drop_columns(["chunk"]))
    found, expected = (dict(file.metadata.metadata) for file in (pq.ParquetFile(path), at_close))
    assert found.pop(b"tensortrial.chunks") != expected.pop(b"tensortrial.chunks")
    assert found.pop(b"tensortrial.compacted_at") > expected.pop(b"tensortrial.compacted_at")
    assert found == expected


def test_a_small_run_that_cannot_be_compacted_is_closed_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    job = Job(tmp_path, flush_seconds=3600)
    flush(job, 10)
    with before(["create"], tmp_path / "index", fail), job:
        pass
    assert "the disk is full" in caplog.text
    assert tensortrial.create_trial(tmp_path).loaded_all_steps
    assert len(index_files(tmp_path)) == 10


def test_a_small_run_that_was_compacted_while_it_was_written_is_closed_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Job(tmp_path, flush_seconds=3600, steps_per_directory=7) as job:
        flush(job, 10)
        compact(tmp_path, delete_older_than=0)
        before = rows_of(tmp_path)
    assert caplog.records == []
    assert rows_of(tmp_path) == before
    assert tensortrial.create_trial(tmp_path).loaded_all_steps
