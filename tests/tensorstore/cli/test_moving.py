"""`rm` and `mv`: a run is deleted or moved whole, and never under the hands of a process that writes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.commands import run_command
from support.runs import Job
from tensortrial.errors import NotARun, RunNotFound


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An ended run with a checkpoint of its job in its folder."""
    write(tmp_path / "runs" / "a")
    (tmp_path / "runs" / "a" / "model.pt").write_bytes(b"weights")
    return tmp_path / "runs" / "a"


def write(path: Path) -> None:
    with Job(path) as job:
        for step in range(4):
            job.step({"w": np.full(3, step), "loss": float(step)})


def losses(path: object) -> list[float]:
    return [float(value) for value in tensortrial.create_trial(str(path)).tensor("loss").values().values()]


def test_rm_deletes_a_run_and_leaves_files_of_other_kinds(run: Path) -> None:
    refused = run_command("rm", run, status=2)
    assert "pass --yes to delete without a question" in refused.stderr
    assert losses(run) == [0, 1, 2, 3]
    assert run_command("rm", run, "--yes").stdout == f"deleted: {run}; 1 other file stays in its folder\n"
    assert [path.name for path in run.rglob("*")] == ["model.pt"]
    assert "is not a run" in run_command("rm", run, "--yes", status=1).stderr


def test_rm_leaves_no_empty_folder_and_deletes_several(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name)
    run_command("rm", tmp_path / "a", tmp_path / "b", "-y")
    assert list(tmp_path.iterdir()) == []
    assert "no run was found here" in run_command("rm", tmp_path / "a", "-y", status=1).stderr


@pytest.mark.parametrize("command", ["rm", "mv"])
def test_a_run_that_a_process_writes_is_neither_deleted_nor_moved(tmp_path: Path, command: str) -> None:
    with tensortrial.Run(tmp_path / "run", environment=False) as writing:
        writing.log({"loss": 1.0}, step=0)
        arguments = ["-y"] if command == "rm" else [tmp_path / "other"]
        refused = run_command(command, tmp_path / "run", *arguments, status=1)
        assert "only a run that nobody writes to is replaced, moved or deleted" in refused.stderr
    assert losses(tmp_path / "run") == [1.0]


def test_mv_renames_a_run_with_all_its_files(run: Path) -> None:
    before = losses(run)
    target = run.parent / "deeper" / "b"
    assert run_command("mv", run, target).stdout == f"moved: {run} to {target}\n"
    assert losses(target) == before
    assert (target / "model.pt").read_bytes() == b"weights"
    assert not run.exists()
    run_command("mv", target, run.parent)
    assert losses(run.parent / "b") == before


def test_mv_overwrites_nothing(run: Path) -> None:
    write(run.parent / "b")
    refused = run_command("mv", run, run.parent / "b", status=1)
    assert "choose another name" in refused.stderr
    (run.parent / "folder" / "a").mkdir(parents=True)
    (run.parent / "folder" / "a" / "notes.txt").write_text("mine")
    assert "choose another name" in run_command("mv", run, run.parent / "folder", status=1).stderr
    assert losses(run) == [0, 1, 2, 3]


def test_mv_copies_a_run_to_a_url_whole_and_back(run: Path, tmp_path: Path) -> None:
    before = losses(run)
    run_command("mv", run, "memory://moved/a")
    assert not run.exists()
    assert losses("memory://moved/a") == before
    assert tensortrial.verify("memory://moved/a").is_whole
    run_command("mv", "memory://moved/a", tmp_path / "back")
    assert losses(tmp_path / "back") == before
    assert (tmp_path / "back" / "model.pt").read_bytes() == b"weights"


@pytest.mark.parametrize("command", ["rm", "mv"])
def test_a_reader_of_a_run_that_is_gone_gets_an_error_that_says_so(run: Path, command: str) -> None:
    trial = tensortrial.create_trial(run)
    assert trial.tensor("w").value(0).tolist() == [0, 0, 0]
    run_command(command, run, *(["-y"] if command == "rm" else [run.parent / "b"]))
    for reading in (lambda: tensortrial.create_trial(run), trial.refresh):
        with pytest.raises((RunNotFound, NotARun)):
            reading()
