"""Compaction: nothing is lost or seen twice, whatever other processes do, and whenever one of them dies."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tensortrial
from support.runs import EVAL, TRAIN, Job, edit_document
from support.servers import ObjectStore
from tensortrial.errors import ConfigurationError, CorruptFile, NotARun, RunNotFound, UnknownFormat
from tensortrial.format.flush_range import FlushRange, current_files, flush_range_of
from tensortrial.maintenance.compaction import Compaction, compact
from tensortrial.read.trial import Trial
from tensortrial.storage.local import LocalStorage
from tensortrial.storage.open import open_storage
from tensortrial.write import close_compaction

Rows = list[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What a run does by itself at its end has tests of its own."""
    if "small" not in request.node.name:
        monkeypatch.setattr(close_compaction, "_ROWS", 0)


def write(folder: Path | str, flushes: int, worker: str = "worker_0", num_workers: int = 1, **how: Any) -> None:
    with Job(folder, worker, num_workers, flush_seconds=3600, **how) as job:
        _flush(job, flushes)


def _flush(job: Job, flushes: int) -> None:
    for _ in range(flushes):
        number = job.next_global_step
        values = {"w": np.arange(4.0) + number, "loss": number / 2} if number % 3 else {"loss": number / 2}
        job.step(values, mode=EVAL if number % 5 == 4 else TRAIN, statistics=("min", "l2"), histogram=True)
        job.flush()


def kill(folder: Path) -> None:
    """Make a run that has ended one that still runs, as far as readers can tell."""
    for mark in (folder / "end").glob("*.json"):
        mark.unlink()


def index_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("index/*/*/*.parquet"))


def assert_chunks_are_named(folder: Path) -> None:
    """Nothing is left behind, and nothing is missing."""
    there = {str(path.relative_to(folder)) for path in folder.glob("tensors/*/*/*/*.parquet")}
    named = tensortrial.create_trial(folder).sql("select distinct chunk from tensors where chunk is not null")
    assert {chunk for (chunk,) in named.fetchall()} == there


def rows_of(run: Path | str, **options: Any) -> Rows:
    """Every row of the index, every step, and every value."""
    trial = tensortrial.create_trial(run, **options)
    found = rows_seen(trial)
    trial.close()
    return found


def rows_seen(trial: Trial) -> Rows:
    # Where the values are is what compaction changes.
    location = 'chunk, "offset", row_group, "row", parts'
    query = f"select * exclude ({location}) from tensors order by worker, global_step, name"
    rows = trial.sql(query).fetchall()
    rows += trial.sql("select worker, global_step, name, part, value from tensor_values order by all").fetchall()
    by_view = trial.sql("select worker, global_step, mode, num_tensors from steps order by all").fetchall()
    steps = trial.steps(show_incomplete_steps=True)
    values = {name: trial.tensor(name).values(worker=None) for name in trial.tensor_names()}
    assert sorted({step for by_step in values.values() for step in by_step}) == steps
    for step in steps[:: max(1, len(steps) // 7)]:
        assert trial.tensor("loss").value(step) == step / 2
    return [*rows, *by_view, *steps, json.dumps(values, default=np.ndarray.tolist)]  # type: ignore[list-item]


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
    done = compact(tmp_path, grace=0)
    assert index_files(tmp_path) == [
        "00000000-00000039.parquet",
        "00000040-00000079.parquet",
        "00000080-00000099.parquet",
    ]
    assert (done.files_before, done.files_after, dict(done.damaged)) == (100, 3, {})
    assert done.bytes_after < done.bytes_before / 5
    assert done.bytes_after == sum(path.stat().st_size for path in tmp_path.glob("index/*/*/*.parquet"))
    assert rows_of(tmp_path) == before
    assert compact(tmp_path, grace=0) == Compaction(3, done.bytes_after, 3, done.bytes_after)


def test_a_negative_grace_is_refused(tmp_path: Path) -> None:
    Job(tmp_path).close()
    with pytest.raises(ConfigurationError, match="grace must be a number of seconds, at least 0, got -1"):
        compact(tmp_path, grace=-1)


def test_of_a_run_that_goes_on_only_what_is_over_is_compacted(tmp_path: Path) -> None:
    write(tmp_path, 150)
    kill(tmp_path)
    before = rows_of(tmp_path)
    compact(tmp_path, grace=0)
    blocks = ["00000000-00000063.parquet", "00000064-00000127.parquet"]
    assert index_files(tmp_path) == [*blocks, *(f"{number:08d}.parquet" for number in range(128, 150))]
    assert rows_of(tmp_path) == before


def test_a_finished_folder_is_compacted_whole(tmp_path: Path) -> None:
    write(tmp_path, 90, steps_per_directory=50)
    kill(tmp_path)
    compact(tmp_path, grace=0)
    assert index_files(tmp_path) == [
        "00000000-00000049.parquet",
        "00000050-00000063.parquet",
        *(f"{number:08d}.parquet" for number in range(64, 90)),
    ]


def test_every_worker_is_compacted(tmp_path: Path) -> None:
    jobs = [Job(tmp_path, f"worker_{rank}", 3, flush_seconds=3600) for rank in range(3)]
    for job in jobs:
        _flush(job, 10)
    for job in jobs:
        job.close()
    before = rows_of(tmp_path)
    assert compact(tmp_path, grace=0).files_after == 3
    assert rows_of(tmp_path) == before


def test_a_resumed_run(tmp_path: Path) -> None:
    write(tmp_path, 30)
    compact(tmp_path, grace=0)
    write(tmp_path, 30, resume=True)
    assert index_files(tmp_path) == [
        "00000000-00000029.parquet",
        *(f"{number:08d}.parquet" for number in range(30, 60)),
    ]
    before = rows_of(tmp_path)
    assert tensortrial.create_trial(tmp_path).steps() == [*range(60)]
    compact(tmp_path, grace=0)
    assert index_files(tmp_path) == ["00000000-00000059.parquet"]
    assert rows_of(tmp_path) == before


def test_a_folder_with_too_many_rows_is_compacted_into_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensortrial.maintenance.compaction._ROWS", 20)
    write(tmp_path, 40)
    before = rows_of(tmp_path)
    compact(tmp_path, grace=0)
    assert index_files(tmp_path) == [f"{first:08d}-{first + 7:08d}.parquet" for first in range(0, 40, 8)]
    assert rows_of(tmp_path) == before


def test_a_compacted_file_is_sorted_for_queries_by_tensor_and_by_step(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        for _ in range(200):
            job.step({"b": 1.0, "a": 2.0})
            job.flush()
    compact(tmp_path, grace=0)
    (path,) = tmp_path.glob("index/*/*/*.parquet")
    table = pq.ParquetFile(path).read()
    keys = list(zip(table["name"].to_pylist(), table["global_step"].to_pylist(), strict=True))
    assert keys == sorted(keys, key=lambda key: (key[1] // 128, *key))


def test_the_files_of_a_grace_period_stay_for_so_long(tmp_path: Path) -> None:
    write(tmp_path, 5)
    begun = time.monotonic()
    thread = threading.Thread(target=compact, args=[tmp_path], kwargs={"grace": 1.0})
    thread.start()
    while "00000000-00000004.parquet" not in index_files(tmp_path):
        time.sleep(0.01)
    assert len(index_files(tmp_path)) == 6
    thread.join()
    assert time.monotonic() - begun >= 1
    assert index_files(tmp_path) == ["00000000-00000004.parquet"]


def test_a_second_run_finishes_what_the_first_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 20)
    before = rows_of(tmp_path)

    def interrupted(self: Any, seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tensortrial.maintenance.compaction._Compactor._wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compact(tmp_path)
    assert len(index_files(tmp_path)) == 21
    assert rows_of(tmp_path) == before
    monkeypatch.undo()
    assert compact(tmp_path, grace=0).files_after == 1
    assert rows_of(tmp_path) == before


def test_compacting_a_path_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound):
        compact(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(NotARun):
        compact(tmp_path)


def test_the_command_compact(tmp_path: Path) -> None:
    write(tmp_path, 20)
    command = [sys.executable, "-m", "tensortrial", "compact", str(tmp_path), "--grace", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("20 index files of ")
    assert " are now 1 of " in done.stdout
    assert "20/20" in done.stderr
    assert "Traceback" not in done.stderr


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
    done = compact(tmp_path, grace=0)
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
    compact(tmp_path, grace=0)
    assert index_files(tmp_path) == ["00000000-00000004.parquet", "foreign.parquet"]
    assert tensortrial.create_trial(tmp_path).steps() == [*range(5)]


def test_a_truncated_compacted_file_leaves_the_files_that_it_supersedes(tmp_path: Path) -> None:
    write(tmp_path, 5)
    before = rows_of(tmp_path)
    bad = tmp_path / "index/worker=worker_0/step=000000000000/00000000-00000004.parquet"
    bad.write_bytes(b"PAR1 and then nothing")
    assert rows_of(tmp_path) == before
    assert list(compact(tmp_path, grace=0).damaged) == [str(bad.relative_to(tmp_path))]
    assert rows_of(tmp_path) == before
    bad.unlink()
    compact(tmp_path, grace=0)
    assert index_files(tmp_path) == [bad.name]
    assert rows_of(tmp_path) == before


def test_a_forged_compacted_file_deletes_nothing(tmp_path: Path) -> None:
    """One that claims the flushes of others, and does not hold them."""
    write(tmp_path / "a", 5)
    write(tmp_path / "b", 3)
    compact(tmp_path / "b", grace=0)
    (forged,) = (tmp_path / "b").glob("index/*/*/*.parquet")
    folder = tmp_path / "a/index/worker=worker_0/step=000000000000"
    forged.rename(folder / "00000000-00000004.parquet")
    compact(tmp_path / "a", grace=0)
    assert {"00000003.parquet", "00000004.parquet"} <= {path.name for path in folder.iterdir()}


# ---------------------------------------------------------------------------------------------------------- readers


@pytest.fixture(params=["ended", "live"])
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    write(tmp_path, 70)
    if request.param == "live":
        kill(tmp_path)
    return tmp_path


def test_an_open_trial_does_not_notice(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = rows_of(run)
    trial = tensortrial.create_trial(run)
    assert trial.tensor("loss").value(3) == 1.5  # one step is read, the others are not
    compact(run, grace=0)
    assert trial.tensor("loss").value(3) == 1.5
    assert trial.tensor("w").value(5).tolist() == [5, 6, 7, 8]
    assert trial.tensor("w").reduction_value(8, "min") == 8
    assert rows_seen(trial) == before
    assert not trial.damaged
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "question",
    [
        lambda trial: trial.tensor("loss").value(40),
        lambda trial: trial.tensor("w").reduction_value(40, "l2"),
        lambda trial: trial.tensor("w").values(),
        lambda trial: trial.values(["w", "loss"]),
        lambda trial: trial.sql("select sum(scalar), count(*) from tensors").fetchall(),
        lambda trial: trial.tensor("loss").reduction_values(9),
        lambda trial: {name: rows[0][:9] for name, rows in trial._reader.catalogue.rows_of_step(13).items()},
    ],
)
def test_queries_succeed_although_their_files_were_compacted(run: Path, question: Callable[[Trial], Any]) -> None:
    expected = question(tensortrial.create_trial(run))
    trial = tensortrial.create_trial(run)
    with tensortrial.no_refresh(trial):
        compact(run, grace=0)
        found = question(trial)
        assert trial.steps(show_incomplete_steps=True) == [*range(70)]
    np.testing.assert_equal(found, expected)


def test_a_trial_that_knew_some_of_what_was_compacted(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        _flush(job, 40)
        live, still = tensortrial.create_trial(tmp_path), tensortrial.create_trial(tmp_path)
        assert live.tensor("loss").values()[39] == 19.5
        _flush(job, 30)
        with tensortrial.no_refresh(still):
            assert compact(tmp_path, grace=0).files_after == 7
            assert still.steps(show_incomplete_steps=True) == [*range(40)]
            assert still.tensor("loss").value(7) == 3.5
            assert still.steps(show_incomplete_steps=True) == [*range(40)]
        assert live.steps(show_incomplete_steps=True) == [*range(70)]
        assert live.tensor("loss").values() == still.tensor("loss").values() == {step: step / 2 for step in range(70)}
        _flush(job, 80)
        compact(tmp_path, grace=0)
        assert live.steps(show_incomplete_steps=True) == [*range(150)]
        assert len(live.tensor("loss").values()) == 150
    compact(tmp_path, grace=0)
    assert rows_seen(live) == rows_seen(still) == rows_of(tmp_path)


def test_steps_that_a_rule_has_seen_do_not_come_again(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        _flush(job, 40)
        trial = tensortrial.create_trial(tmp_path)
        seen = trial._reader.catalogue.fetch("steps_since", after=-1)
        _flush(job, 30)
        compact(tmp_path, grace=0)
        trial.refresh()
        new = trial._reader.catalogue.fetch("steps_since", after=max(row[0] for row in seen))
        assert [row[3] for row in new] == [*range(40, 70)]


def test_a_reader_of_a_part_of_the_steps(run: Path) -> None:
    trial = tensortrial.create_trial(run, range_steps=(10, 20))
    compact(run, grace=0)
    assert trial.steps(show_incomplete_steps=True) == [*range(10, 20)]
    assert trial.tensor("loss").values() == {step: step / 2 for step in range(10, 20)}
    assert trial.sql("select count(*) from scalars").fetchall() == [(10,)]


@pytest.mark.parametrize("vanishes_after", ["listing", "half of a listing"])
def test_files_that_are_compacted_while_they_are_listed(tmp_path: Path, vanishes_after: str) -> None:
    write(tmp_path, 20)
    before = rows_of(tmp_path)

    class Listed(LocalStorage):
        compacted = False

        def _list_after(self, folder: str, after: str) -> list[str]:
            paths = super()._list_after(folder, after)
            if not self.compacted and paths:
                self.compacted = True
                compact(tmp_path, grace=0)
                if vanishes_after == "half of a listing":
                    del paths[7:15]
            return paths

    trial = Trial(Listed(str(tmp_path)), tensortrial.create_trial(tmp_path).info, "t")
    assert rows_seen(trial) == before
    assert not trial.damaged


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.parametrize("server", ["moto_s3", "ceph_s3"])
def test_in_an_object_store(request: pytest.FixtureRequest, server: str) -> None:
    store: ObjectStore = request.getfixturevalue(server)
    url, options = f"{store.new_bucket()}/run", store.storage_options
    with Job(url, storage_options=options, flush_seconds=3600) as job:
        _flush(job, 66)
        trial = tensortrial.create_trial(url, storage_options=options)
        done = compact(url, grace=0, storage_options=options)
        assert (done.files_before, done.files_after) == (66, 3)
        assert trial.tensor("w").value(5).tolist() == [5, 6, 7, 8]
        assert len(trial.tensor("loss").values()) == 66
        _flush(job, 4)
        assert trial.steps(show_incomplete_steps=True) == [*range(70)]
    before = rows_of(url, storage_options=options)
    assert compact(url, grace=0, storage_options=options).files_after == 1
    assert rows_of(url, storage_options=options) == before
    assert rows_seen(trial) == before


# -------------------------------------------------------------------------------------------------- real processes

PROGRAM = """
import sys
from tensortrial.maintenance.compaction import compact
compact(sys.argv[1], grace=float(sys.argv[2]))
"""


def compacting(folder: Path, grace: float = 0.0) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder), str(grace)])


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Each state between reads the same, and the next run makes of it what the first would have made."""
    write(tmp_path, 100, steps_per_directory=22)
    before = rows_of(tmp_path)
    moments = random.Random(0)
    context = multiprocessing.get_context("fork")
    killed = 0
    for _ in range(8):
        child = context.Process(target=compact, args=[tmp_path], kwargs={"grace": 0.0})
        child.start()
        child.join(moments.uniform(0.0, 0.12))
        if child.is_alive():
            os.kill(child.pid or 0, signal.SIGKILL)
            killed += 1
        child.join()
        assert rows_of(tmp_path) == before
    assert killed
    compact(tmp_path, grace=0)
    assert len(index_files(tmp_path)) == 5
    assert rows_of(tmp_path) == before
    assert_chunks_are_named(tmp_path)


def test_several_at_once(tmp_path: Path) -> None:
    write(tmp_path, 80, steps_per_directory=30)
    before = rows_of(tmp_path)
    for process in [compacting(tmp_path) for _ in range(3)]:
        assert process.wait(60) == 0
    compact(tmp_path, grace=0)  # each leaves alone what it does not know
    assert_chunks_are_named(tmp_path)
    assert len(index_files(tmp_path)) == 3
    assert rows_of(tmp_path) == before


def test_a_writer_and_readers_that_go_on_meanwhile(tmp_path: Path) -> None:
    """One process writes, one compacts again and again without any grace, one reads through one trial all the time."""
    count = 250
    folder, enough = tmp_path / "run", tmp_path / "enough"
    program = f"""
        import os, sys, time
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from support.runs import Job
        with Job(sys.argv[1], flush_seconds=0, steps_per_directory=150) as job:
            for number in range({count}):
                job.step({{"loss": number / 2, "w": [number, number]}})
                time.sleep(0.01)
            while not os.path.exists(sys.argv[2]):
                time.sleep(0.01)
    """
    writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program), str(folder), str(enough)])
    trial = tensortrial.create_trial(folder, timeout=30)
    seen: list[int] = []
    compactions = 0
    try:
        while not trial.loaded_all_steps:
            compactor = compacting(folder)
            while compactor.poll() is None:
                steps = trial.steps(show_incomplete_steps=True)
                assert steps[: len(seen)] == seen
                seen = steps
                assert steps == [*range(len(steps))]
                if steps:
                    assert trial.tensor("loss").value(steps[-1]) == steps[-1] / 2
                    assert trial.tensor("w").value(steps[len(steps) // 2])[0] == steps[len(steps) // 2]
                    assert len(trial.tensor("loss").values()) >= len(steps)
            assert compactor.returncode == 0
            compactions += 1
            if compactions == 2:
                enough.touch()
        assert writer.wait(30) == 0
    finally:
        writer.kill()
        writer.wait()
    assert compactions > 1
    trial.refresh()
    assert trial.steps() == [*range(count)]
    assert trial.tensor("loss").values() == {step: step / 2 for step in range(count)}
    assert not trial.damaged
    compact(folder, grace=0)
    assert len(index_files(folder)) == 2
    assert rows_seen(trial) == rows_of(folder)
    assert_chunks_are_named(folder)


# ------------------------------------------------------------------------------------------------------- small runs


def test_a_small_run_is_compacted_when_it_ends(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600, steps_per_directory=30) as job:
        _flush(job, 50)
        trial = tensortrial.create_trial(tmp_path)
        before = rows_seen(trial)
        assert len(index_files(tmp_path)) == 50
    # What others may be reading stays.
    assert len(index_files(tmp_path)) == 52
    assert rows_seen(trial) == before
    fresh = tensortrial.create_trial(tmp_path)
    assert rows_seen(fresh) == before
    (_, paths) = zip(*fresh._reader.catalogue.fetch("index_paths"), strict=True)
    assert [path.rpartition("/")[2] for path in paths] == ["00000000-00000029.parquet", "00000030-00000049.parquet"]
    assert compact(tmp_path, grace=0).files_after == 2
    assert rows_seen(fresh) == rows_seen(trial) == before


def test_a_small_run_that_is_resumed(tmp_path: Path) -> None:
    for session in range(3):
        write(tmp_path, 10, resume=session > 0)
    assert index_files(tmp_path)[:2] == ["00000000-00000009.parquet", "00000000.parquet"]
    assert len(index_files(tmp_path)) == 31
    before = rows_of(tmp_path)
    assert compact(tmp_path, grace=0).files_after == 1
    assert rows_of(tmp_path) == before


def test_a_small_file_is_what_compact_would_write(tmp_path: Path) -> None:
    write(tmp_path / "a", 20)
    for path in (tmp_path / "a/index").glob("*/*/*-*.parquet"):
        at_close = pq.ParquetFile(path)
        path.unlink()
    compact(tmp_path / "a", grace=0)
    (path,) = (tmp_path / "a").glob("index/*/*/*.parquet")
    rows, expected_rows = pq.ParquetFile(path).read(), at_close.read()
    assert len(set(rows["chunk"].to_pylist())) == len(set(expected_rows["chunk"].to_pylist())) == 3  # two, and none
    assert rows.drop_columns(["chunk"]).equals(expected_rows.drop_columns(["chunk"]))
    found, expected = (dict(file.metadata.metadata) for file in (pq.ParquetFile(path), at_close))
    assert found.pop(b"tensortrial.chunks") != expected.pop(b"tensortrial.chunks")
    assert found.pop(b"tensortrial.compacted_at") > expected.pop(b"tensortrial.compacted_at")
    assert found == expected


def test_a_small_run_that_cannot_be_compacted_is_closed_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        _flush(job, 10)

        def full(path: str) -> None:
            raise tensortrial.errors.StorageError(path, "the disk is full")  # type: ignore[attr-defined]

        monkeypatch.setattr(job.storage, "sink", full)
    assert "the disk is full" in caplog.text
    assert tensortrial.create_trial(tmp_path).loaded_all_steps
    assert len(index_files(tmp_path)) == 10


# --------------------------------------------------------------------------------------------------- long histories


class Histories(RuleBasedStateMachine):
    """Writers that come and go, trials that stay open, and compactions that stop wherever they like."""

    @initialize()
    def begin(self) -> None:
        Histories.runs += 1
        self.url = f"memory://compaction-{os.getpid()}-{Histories.runs}/run"
        self.job: Job | None = None
        self.steps = 0
        self.trials: list[Trial] = []

    runs = 0

    @precondition(lambda self: self.job is None)
    @rule(kept=st.booleans())
    def open(self, kept: bool) -> None:
        close_compaction._ROWS = 8192 if kept else 0
        self.job = Job(self.url, resume=self.steps > 0 or open_storage(self.url).exists_any(), steps_per_directory=90)
        self.job.writer._flush_seconds = 3600

    @precondition(lambda self: self.job is not None)
    @rule(count=st.integers(1, 40))
    def flush(self, count: int) -> None:
        assert self.job is not None
        for _ in range(count):
            step = self.job.next_global_step
            self.job.step({"loss": step / 2, "w": [step, step]})
            self.job.flush()
        self.steps += count

    @precondition(lambda self: self.job is not None)
    @rule()
    def close(self) -> None:
        assert self.job is not None
        self.job.close()
        self.job = None

    @precondition(lambda self: open_storage(self.url).exists_any())
    @rule()
    def refresh(self) -> None:
        self.trials = [*self.trials[-2:], tensortrial.create_trial(self.url)]

    @precondition(lambda self: open_storage(self.url).exists_any())
    @rule(stop=st.one_of(st.none(), st.integers(0, 60)))
    def compact(self, stop: int | None) -> None:
        with _stopped_after(stop):
            compact(self.url, grace=0)

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "url") or not open_storage(self.url).exists_any():
            return
        for trial in [*self.trials, tensortrial.create_trial(self.url)]:
            trial.refresh()
            assert trial.steps(show_incomplete_steps=True) == [*range(self.steps)]
            rows = trial.sql("select global_step, scalar from tensors where name = 'loss' order by all").fetchall()
            assert rows == [(step, step / 2) for step in range(self.steps)]
            if self.steps:
                assert trial.tensor("loss").value(self.steps // 2) == self.steps // 2 / 2
                assert len(trial.tensor("loss").values()) == self.steps
                values = trial.tensor("w").values()
                assert [value.tolist() for value in values.values()] == [[step, step] for step in range(self.steps)]
            assert not trial.damaged

    def teardown(self) -> None:
        if getattr(self, "job", None) is not None:
            assert self.job is not None
            self.job.close()


class _Stop(BaseException):
    pass


class _stopped_after:  # noqa: N801
    """Inside, the storage breaks off after so many writes and deletions, as if the process had been killed."""

    def __init__(self, stop: int | None) -> None:
        self._left = stop

    def __enter__(self) -> None:
        from tensortrial.storage.fsspec import FsspecStorage

        self._saved = FsspecStorage.create, FsspecStorage.remove

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def counting(*args: Any) -> Any:
                if self._left is not None:
                    self._left -= 1
                    if self._left < 0:
                        raise _Stop
                return call(*args)

            return counting

        FsspecStorage.create = counted(FsspecStorage.create)  # type: ignore[method-assign]
        FsspecStorage.remove = counted(FsspecStorage.remove)  # type: ignore[method-assign]

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> bool:
        from tensortrial.storage.fsspec import FsspecStorage

        FsspecStorage.create, FsspecStorage.remove = self._saved  # type: ignore[method-assign]
        return kind is _Stop


@pytest.fixture(autouse=True)
def _memory_is_released() -> Iterator[None]:
    yield
    import fsspec

    fsspec.filesystem("memory").store.clear()


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=5, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck)
)
