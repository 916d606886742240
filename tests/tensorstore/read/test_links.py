"""Nothing in a run is read or written through a symbolic link: it could lead into another run."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tensortrial
from support.runs import Job
from tensortrial.cli import main
from tensortrial.errors import StorageError, TensorTrialError
from tensortrial.maintenance.compaction import compact
from tensortrial.storage.open import open_storage

STEP = "step=000000000000"
LINKED = {
    "the index": "index",
    "a worker's index": "index/worker=worker_0",
    "a folder of steps": f"index/worker=worker_0/{STEP}",
    "an index file": f"index/worker=worker_0/{STEP}/00000001.parquet",
    "the chunks": "tensors",
    "a folder of chunks": f"tensors/mode=GLOBAL/{STEP}/worker=worker_0",
    "a chunk": f"tensors/mode=GLOBAL/{STEP}/worker=worker_0/00000001.parquet",
    "the claims": "collections",
    "a claim": "collections/worker_0.json",
    "the run file": "run.json",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written") / "run"
    with Job(folder, flush_seconds=0) as job:
        for step in range(3):
            job.publish({"w": np.full(3, float(step))})
    return folder


def files_of(run: Path) -> dict[str, bytes]:
    return {str(file.relative_to(run)): file.read_bytes() for file in run.rglob("*") if file.is_file()}


@pytest.fixture
def other(tmp_path: Path, written: Path) -> Path:
    """Another run, of which nothing may change."""
    return shutil.copytree(written, tmp_path / "other")


@pytest.fixture
def run(tmp_path: Path, other: Path) -> Path:
    shutil.copytree(other, tmp_path / "run")
    return tmp_path / "run"


def link(run: Path, other: Path, path: str) -> None:
    entry = run / path
    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    entry.symlink_to(other / path)


@pytest.mark.parametrize("path", LINKED.values(), ids=LINKED)
def test_compact_refuses_a_run_with_a_link(run: Path, other: Path, path: str) -> None:
    link(run, other, path)
    before = files_of(other)
    try:
        found = compact(run, delete_older_than=0)
    except TensorTrialError as exc:
        said = str(exc)
    else:
        said = " ".join(map(str, found.damaged.values()))
    assert "is a symbolic link" in said
    assert files_of(other) == before


@pytest.mark.parametrize("path", LINKED.values(), ids=LINKED)
def test_a_reader_names_a_link_and_reads_nothing_behind_it(run: Path, other: Path, path: str) -> None:
    link(run, other, path)
    shutil.copytree(other, run.parent / "third")
    said = ""
    try:
        with tensortrial.create_trial(run) as trial:
            trial.sql("select count(*) from tensor_values").fetchall()
            said = " ".join(map(str, trial.damaged.values()))
            trial.values(["w"])
    except TensorTrialError as exc:
        said += str(exc)
    assert "is a symbolic link" in said
    with tensortrial.open_runs([run, run.parent / "third"]) as runs:
        assert runs.sql("select count(*) from tensors where run = 'third'").fetchall() == [(3,)]


def test_nothing_is_written_through_a_link(tmp_path: Path, other: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "index").symlink_to(other / "index")
    before = files_of(other)
    storage = open_storage(tmp_path / "run")
    for write in (storage.create, storage.replace):
        with pytest.raises(StorageError, match="is a symbolic link"):
            write("index/new.json", b"x")
    with pytest.raises(StorageError, match="is a symbolic link"):
        storage.remove(f"index/worker=worker_0/{STEP}/00000000.parquet")
    with pytest.raises(StorageError, match="is a symbolic link"):
        storage.sink("index/new.parquet")
    assert files_of(other) == before


def test_a_run_may_itself_be_reached_by_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(run)
    compact(tmp_path / "linked", delete_older_than=0)
    with tensortrial.create_trial(tmp_path / "linked") as trial:
        assert trial.damaged == {}
        assert len(trial.values(["w"])["w"]) == 3


def test_the_command_line_refuses_a_link_in_a_sentence(run: Path, other: Path) -> None:
    link(run, other, "index")
    done = CliRunner().invoke(main, ["compact", str(run), "--delete-older-than", "0"])
    assert done.exit_code != 0
    assert "is a symbolic link" in done.output
    assert "Traceback" not in done.output
