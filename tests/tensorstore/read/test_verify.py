"""Verification: of whole runs, of runs damaged in every way, and of runs that are written meanwhile."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.commands import run_command
from support.limits import set_limits
from support.runs import Job, chunk, flip, index_file
from tensortrial.errors import NotARun, RunNotFound, StorageError
from tensortrial.format.index_reader import read_batches
from tensortrial.maintenance.compaction import compact
from tensortrial.read.verify import Damage, Verification, chunks
from tensortrial.snapshot.index_files import list_index
from tensortrial.storage.local import LocalStorage
from tensortrial.storage.open import open_storage

pytestmark = pytest.mark.usefixtures("nothing_is_small")

STEPS = 6
WORKERS = ("worker_0", "worker_1")


def write(url: Path | str, workers: tuple[str, ...] = ("worker_0",), steps: int = STEPS, **options: Any) -> None:
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(Job(url, worker, len(workers), flush_seconds=3600, **options)) for worker in workers
        ]
        for step in range(steps):
            for rank, job in enumerate(jobs):
                values = {"w": np.full((20, 20), 100 * rank + step), "text": np.array(["a", "bc"]), "loss": 0.5}
                job.publish(values, statistics=("mean", "l2"), histogram=True)


def the_damage(run: Path) -> Damage:
    report = tensortrial.verify(run)
    (damage,) = report.damaged
    assert not report.is_whole
    return damage


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_whole_run_is_whole(tmp_path: Path, codec: str, compacted: bool) -> None:
    write(tmp_path, WORKERS, codec=codec)
    if compacted:
        compact(tmp_path, delete_older_than=0)
    report = tensortrial.create_trial(tmp_path).verify()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert report == Verification(
        str(tmp_path),
        files=len(files),
        nbytes=sum(path.stat().st_size for path in files),
        rows=len(WORKERS) * STEPS * 3,
        values=len(WORKERS) * STEPS * 2,
    )
    assert report.is_whole


def test_a_run_in_memory_is_verified() -> None:
    write("memory://verified")
    assert tensortrial.verify("memory://verified").is_whole


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_chunk_that_is_missing_is_named_with_its_steps_and_tensors(tmp_path: Path, codec: str) -> None:
    write(tmp_path, codec=codec)
    lost = chunk(tmp_path, 3)
    lost.unlink()
    assert the_damage(tmp_path) == Damage(
        str(lost.relative_to(tmp_path)), "it is missing", "worker_0", (3,), ("text", "w"), 2
    )


SIZES = [0, 1, 9000, 10, 2048, 10, 10_000, 16_383, 16_384, 25_000, 1, 0, 70_000]


def write_sizes(run: Path) -> tuple[Path, dict[str, int]]:
    """Write one chunk of values of many sizes, and return it with where each value begins."""
    with Job(run) as job:
        job.step({f"w{number}": np.full(size, number + 1.0, "f4") for number, size in enumerate(SIZES)})
    storage = open_storage(run)
    (index,) = list_index(storage, "worker_0")
    rows = [row for batch in read_batches(index, storage.read(index)) for row in batch.to_pylist()]
    (path,) = run.glob("tensors/*/*/*/*.parquet")
    return path, {row["name"]: row["offset"] for row in rows if row["chunk"]}


@pytest.mark.parametrize("piece_bytes", [1 << 16, 1 << 17, 1 << 20])
@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
def test_damage_of_each_value_is_found_wherever_pieces_of_the_file_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int, small_bytes: int
) -> None:
    set_limits(
        monkeypatch,
        bytes_of_a_small_value=small_bytes,
        bytes_of_a_verified_piece=piece_bytes,
        bytes_verified_at_once=1 << 16,
    )
    path, offsets = write_sizes(tmp_path)
    with monkeypatch.context() as patched:
        # One read of the file serves its checksums and all digests.
        patched.setattr(chunks, "read_values", None)
        assert tensortrial.verify(tmp_path).is_whole
    for name, offset in offsets.items():
        nbytes = 4 * SIZES[int(name[1:])]
        for position in {offset - 4, *([offset, offset + nbytes // 2, offset + nbytes - 1] if nbytes else [])}:
            flip(path, position)
            assert the_damage(tmp_path).tensors == (name,), position
            flip(path, position)
    assert tensortrial.verify(tmp_path).is_whole


def test_only_values_in_the_part_of_a_file_that_cannot_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a broken disk has a bad sector."""
    set_limits(monkeypatch, bytes_of_a_small_value=0, bytes_of_a_verified_piece=1 << 16)
    _, offsets = write_sizes(tmp_path)
    bad = offsets["w9"] + 50_000
    read_into, read_ranges = LocalStorage.read_into, LocalStorage.read_ranges

    def refuse(ranges: Any) -> None:
        if any(each.start <= bad < each.end and "tensors" in each.path for each in ranges):
            raise StorageError(ranges[0].path, "Input/output error")

    def refusing_into(self: LocalStorage, ranges: Any, buffers: Any) -> Any:
        refuse(ranges)
        return read_into(self, ranges, buffers)

    def refusing(self: LocalStorage, ranges: Any) -> Any:
        refuse(ranges)
        return read_ranges(self, ranges)

    monkeypatch.setattr(LocalStorage, "read_into", refusing_into)
    monkeypatch.setattr(LocalStorage, "read_ranges", refusing)
    damage = the_damage(tmp_path)
    assert damage.may_pass
    assert damage.tensors == ("w9",)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("file", [chunk, index_file])
def test_a_truncated_file_is_named(tmp_path: Path, codec: str, file: Callable[..., Path]) -> None:
    write(tmp_path, WORKERS, codec=codec)
    cut = file(tmp_path, 2, "worker_1")
    cut.write_bytes(cut.read_bytes()[:-20])
    damage = the_damage(tmp_path)
    assert (damage.path, damage.worker) == (str(cut.relative_to(tmp_path)), "worker_1")


@pytest.mark.parametrize("file", [chunk, index_file])
def test_files_that_were_exchanged_are_named(tmp_path: Path, file: Callable[..., Path]) -> None:
    write(tmp_path, WORKERS)
    one, other = file(tmp_path, 2), file(tmp_path, 2, "worker_1")
    aside = tmp_path.parent / "aside"
    one.rename(aside)
    other.rename(one)
    aside.rename(other)
    found = {damage.path for damage in tensortrial.verify(tmp_path).damaged}
    assert {str(path.relative_to(tmp_path)) for path in (one, other)} <= found


@pytest.mark.parametrize("flush", [0, 3, STEPS - 1])
def test_an_index_file_that_is_missing_is_named(tmp_path: Path, flush: int) -> None:
    write(tmp_path)
    lost = index_file(tmp_path, flush)
    lost.unlink()
    report = tensortrial.verify(tmp_path)
    assert [damage.path for damage in report.damaged] == [str(lost.relative_to(tmp_path))]
    # Its values are still there, and belong to no step.
    assert [(each.path, each.kind) for each in report.unnamed] == [
        (str(chunk(tmp_path, flush).relative_to(tmp_path)), "chunk")
    ]


@pytest.mark.parametrize("name", ["run.json", "collections/worker_1.json", "end/worker_1.json"])
def test_a_damaged_document_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path, WORKERS)
    flip(tmp_path / name, 30)
    assert the_damage(tmp_path).path == name


def test_a_named_pipe_does_not_block(tmp_path: Path) -> None:
    write(tmp_path)
    os.mkfifo(tmp_path / "collections/pipe.json")
    assert the_damage(tmp_path).path == "collections/pipe.json"


def test_a_claim_that_is_missing_is_named(tmp_path: Path) -> None:
    write(tmp_path, WORKERS)
    (tmp_path / "collections/worker_1.json").unlink()
    assert "collections/worker_1.json" in {damage.path for damage in tensortrial.verify(tmp_path).damaged}


def test_a_symbolic_link_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    target = chunk(tmp_path, 2)
    moved = tmp_path.parent / "moved.parquet"
    target.rename(moved)
    target.symlink_to(moved)
    assert str(target.relative_to(tmp_path)) in {damage.path for damage in tensortrial.verify(tmp_path).damaged}


def test_every_truncation_of_a_chunk_is_found(tmp_path: Path) -> None:
    write(tmp_path, steps=1)
    path = chunk(tmp_path, 0)
    data = path.read_bytes()
    for length in range(0, len(data), 601):
        path.write_bytes(data[:length])
        assert the_damage(tmp_path).steps == (0,), length


def test_what_belongs_to_no_step_is_listed_by_kind(tmp_path: Path) -> None:
    write(tmp_path)
    stray = chunk(tmp_path, 2).with_name("00000077.parquet")
    shutil.copy(chunk(tmp_path, 2), stray)
    temporary = stray.with_name(".00000078.parquet.0123456789abcdef.tmp")
    temporary.write_bytes(b"PAR1")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".DS_Store").write_text("no part of a run")
    report = tensortrial.verify(tmp_path)
    assert report.is_whole
    assert {(each.path, each.kind) for each in report.unnamed} == {
        (str(stray.relative_to(tmp_path)), "chunk"),
        (str(temporary.relative_to(tmp_path)), "temporary"),
        ("notes.txt", "other"),
    }


def test_superseded_files_are_listed_and_not_damage(tmp_path: Path) -> None:
    write(tmp_path)
    shutil.copytree(tmp_path, before := tmp_path.parent / "before")
    compact(tmp_path, delete_older_than=0)
    shutil.copytree(before, tmp_path, dirs_exist_ok=True)
    report = tensortrial.verify(tmp_path)
    assert report.is_whole
    assert report.rows == STEPS * 3
    assert len(report.superseded) == STEPS
    assert report.unnamed == ()


def test_workers_that_have_not_ended_and_steps_that_they_lack_are_unfinished(tmp_path: Path) -> None:
    one, other = (Job(tmp_path, worker, 3, flush_seconds=3600) for worker in WORKERS)
    for step in range(4):
        one.step({"loss": 1.0})
        if step < 2:
            other.step({"loss": 1.0})
    other.close()
    one.flush()
    report = tensortrial.verify(tmp_path)
    assert report.is_whole
    found = {(each.worker, each.steps) for each in report.unfinished}
    assert found == {("worker_0", ()), ("worker_2", ()), ("worker_1", (2, 3))}
    one.close()


def test_a_resumed_run_still_names_the_steps_that_a_killed_worker_lacks(tmp_path: Path) -> None:
    for resume in (False, True):
        names = [f"worker_{rank}" for rank in range(3 if resume else 2)]
        jobs = [Job(tmp_path, name, len(names), resume=resume, flush_seconds=3600) for name in names]
        for step in range(4):
            for job in jobs[: 1 if step > 1 and not resume else None]:
                job.step({"loss": 1.0})
        for job in jobs:
            job.flush()
            job.close() if resume else job.abandon()
    assert [(each.worker, each.steps) for each in tensortrial.verify(tmp_path).unfinished] == [("worker_1", (2, 3))]


def test_a_live_run_that_is_compacted_meanwhile_is_whole(tmp_path: Path) -> None:
    job = Job(tmp_path, flush_seconds=0)
    stop = threading.Event()
    errors: list[BaseException] = []

    def act(work: Callable[[], object]) -> None:
        try:
            while not stop.wait(0.02):
                work()
        except BaseException as exc:  # noqa: BLE001 - asserted below
            errors.append(exc)

    works: list[Callable[[], object]] = [
        lambda: (job.step({"w": np.arange(50.0), "loss": 1.0}), job.flush()),
        lambda: compact(tmp_path, delete_older_than=0),
    ]
    threads = [threading.Thread(target=act, args=(work,)) for work in works]
    job.step({"loss": 1.0})
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            report = tensortrial.verify(tmp_path)
            assert report.damaged == ()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    job.close()
    report = tensortrial.verify(tmp_path)
    assert report.is_whole
    assert report.rows == 2 * job.next_global_step - 1
    assert report.unfinished == ()


def test_runs_of_earlier_releases_are_whole() -> None:
    runs = sorted((Path(__file__).parents[2] / "golden").rglob("run.json"))
    assert runs
    for run in runs:
        report = tensortrial.verify(run.parent)
        assert report.damaged == (), run
        assert report.rows > 0


def test_a_path_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound):
        tensortrial.verify(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotARun):
        tensortrial.verify(tmp_path)


def command(*arguments: object) -> CompletedProcess[str]:
    return run_command("verify", "--no-progress", *arguments, status=None)


def test_the_command_prints_what_is_damaged_and_says_it_by_its_status(tmp_path: Path) -> None:
    whole, damaged = tmp_path / "whole", tmp_path / "damaged"
    for run in (whole, damaged):
        write(run)
    chunk(damaged, 3).unlink()
    done = command(whole)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{whole}: whole (")
    assert re.fullmatch(r".* files, [1-9]\d*\.\d kB, .*\n", done.stdout)
    done = command(whole, tmp_path / "nothing", damaged)
    assert done.returncode == 2
    assert "00000003.parquet: it is missing\n    of worker_0, step 3, tensors text, w\n" in done.stdout
    assert "nothing" in done.stderr
    folder = tmp_path / "folder"
    (folder / "run.json").mkdir(parents=True)
    done = command(folder, whole)
    assert (done.returncode, done.stderr) == (2, f"Error: {folder}: run.json: it is a folder, and not a file\n")
    assert done.stdout.startswith(f"{whole}: whole (")
    (whole / "odd\nname").write_text("")
    assert r"odd\nname" in command(whole).stdout
    (whole / "odd\nname").unlink()
    done = command("--json", whole, damaged)
    assert done.returncode == 1
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report["is_whole"] for report in reports] == [True, False]
    assert reports[1]["damaged"][0]["steps"] == [3]
