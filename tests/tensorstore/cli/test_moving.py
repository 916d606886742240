"""`rm` and `mv`: a run is deleted or moved whole, and never under the hands of a process that writes it."""

from __future__ import annotations

import errno
import functools
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.commands import run_command, run_program
from support.file_access import before, before_opening
from support.runs import Job
from tensortrial.errors import NotARun, RunExists, RunInUse, RunNotFound
from tensortrial.maintenance.relocation import move, remove


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An ended run with a checkpoint of its job in its folder."""
    write(tmp_path / "runs" / "a")
    (tmp_path / "runs" / "a" / "model.pt").write_bytes(b"weights")
    return tmp_path / "runs" / "a"


def write(path: Path | str) -> None:
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


def test_rm_deletes_files_that_a_killed_process_has_not_published(run: Path) -> None:
    chunk = next(run.glob("tensors/*/*/*/*.parquet"))
    for published in (chunk, run / "run.json", run / "model.pt"):
        published.with_name(f".{published.name}.{7:016x}.tmp").write_bytes(b"half")
    run_command("rm", run, "--yes")
    assert sorted(path.name for path in run.rglob("*")) == [f".model.pt.{7:016x}.tmp", "model.pt"]


@pytest.mark.parametrize("command", ["rm", "mv"])
def test_a_folder_of_another_program_with_a_run_json_is_neither_deleted_nor_moved(tmp_path: Path, command: str) -> None:
    (tmp_path / "other" / "index").mkdir(parents=True)
    (tmp_path / "other" / "run.json").write_text('{"name": "mine"}')
    (tmp_path / "other" / "index" / "pages.json").write_text("[]")
    arguments = ["-y"] if command == "rm" else [tmp_path / "moved"]
    refused = run_command(command, tmp_path / "other", *arguments, status=1)
    assert "it was not written by tensortrial" in refused.stderr
    assert sorted(path.name for path in tmp_path.rglob("*.json")) == ["pages.json", "run.json"]


def test_rm_deletes_a_run_whose_run_json_is_damaged(run: Path) -> None:
    (run / "run.json").write_bytes(b"\0" * 100)
    run_command("rm", "-y", run)
    assert [path.name for path in run.rglob("*")] == ["model.pt"]


def test_mv_to_a_name_of_a_file_says_so(run: Path) -> None:
    (run.parent / "file").write_text("mine")
    refused = run_command("mv", run, run.parent / "file", status=1)
    assert refused.stderr.endswith("file: a run, a folder or a file of this name is there; choose another name\n")


def test_rm_leaves_no_empty_folder_and_deletes_several(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name)
    run_command("rm", tmp_path / "a", tmp_path / "b", "-y")
    assert list(tmp_path.iterdir()) == []
    assert "no run was found here" in run_command("rm", tmp_path / "a", "-y", status=1).stderr


def test_rm_deletes_the_other_runs_if_one_cannot_be_deleted(tmp_path: Path) -> None:
    for name in ("a", "c"):
        write(tmp_path / name)
    done = run_command("rm", "-y", "a", "none", "c", status=1, cwd=tmp_path)
    assert done.stdout == "deleted: a\ndeleted: c\n"
    assert "none: no run was found here" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["rm", "mv"])
def test_a_run_that_a_process_writes_is_neither_deleted_nor_moved(tmp_path: Path, command: str) -> None:
    with tensortrial.Run(tmp_path / "run", environment=False) as writing:
        writing.log({"loss": 1.0}, step=0)
        arguments = ["-y"] if command == "rm" else [tmp_path / "other"]
        refused = run_command(command, tmp_path / "run", *arguments, status=1)
        assert "a run is replaced, moved or deleted only if no process writes to it" in refused.stderr
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


def test_mv_moves_a_run_into_an_empty_folder(run: Path) -> None:
    (run.parent / "kept").mkdir()
    run_command("mv", run, run.parent / "kept")
    assert losses(run.parent / "kept" / "a") == [0, 1, 2, 3]


def test_mv_into_a_folder_of_the_run_itself_loses_nothing(run: Path) -> None:
    refused = run_command("mv", f"file://{run}", run / "inner", status=1)
    assert "the run cannot be moved here: this is inside the run" in refused.stderr
    run_command("mv", run, run / "sub" / "inner", status=1)
    assert not (run / "sub").exists()
    assert losses(run) == [0, 1, 2, 3]
    write("memory://itself/a")
    run_command("mv", "memory://itself/a", "memory://itself/a/inner")
    assert losses("memory://itself/a/inner") == [0, 1, 2, 3]


@pytest.fixture
def remains(run: Path) -> Path:
    """The files of a run whose move or deletion was killed: run.json is deleted first."""
    (run / "run.json").unlink()
    return run


def test_rm_deletes_what_a_killed_move_has_left(remains: Path) -> None:
    refused = run_command("mv", remains, remains.parent / "b", status=1)
    assert "it has files of a run but no run.json" in refused.stderr
    write(remains.parent / "b")
    refused = run_command("mv", remains.parent / "b", remains, status=1)
    assert "`tensortrial rm` deletes them" in refused.stderr
    run_command("rm", "-y", remains)
    assert [path.name for path in remains.rglob("*")] == ["model.pt"]


def test_no_run_begins_among_the_files_of_another(remains: Path, tmp_path: Path) -> None:
    with pytest.raises(RunExists, match=r"it has files of a run but no run\.json"):
        tensortrial.Run(remains, environment=False)
    (tmp_path / "log.csv").write_text("step,loss\n0,1\n")
    refused = run_command("import", "csv", tmp_path / "log.csv", remains, status=1)
    assert "it has files of a run but no run.json" in refused.stderr
    with tensortrial.Run(remains, environment=False, on_exists="replace") as writing:
        writing.log({"loss": 7.0}, step=0)
    assert losses(remains) == [7]


def test_rm_that_is_interrupted_leaves_no_run_and_can_be_repeated(run: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with before(["remove"], run / "tensors", interrupt), pytest.raises(KeyboardInterrupt):
        remove(run)
    with pytest.raises(NotARun):
        tensortrial.create_trial(run)
    remove(run)
    assert [path.name for path in run.rglob("*")] == ["model.pt"]


@pytest.mark.parametrize("command", ["rm", "mv"])
def test_a_link_to_a_run_is_refused_by_the_name_of_the_folder(run: Path, command: str) -> None:
    link = run.parent.parent / "latest"
    link.symlink_to("runs/a")
    refused = run_command(command, f"{link}/", *(["-y"] if command == "rm" else [run.parent / "b"]), status=1)
    assert f"it is a symbolic link to {run}; name that folder" in refused.stderr
    assert losses(link) == [0, 1, 2, 3]


def test_mv_that_is_interrupted_leaves_no_part_of_a_copy(run: Path) -> None:
    def interrupt() -> None:
        with pytest.raises(NotARun):  # a run of which only a part is copied
            tensortrial.create_trial("memory://interrupted/a")
        raise KeyboardInterrupt

    with before_opening(run / "tensors", interrupt), pytest.raises(KeyboardInterrupt):
        move(run, "memory://interrupted/a")
    assert losses(run) == [0, 1, 2, 3]
    assert move(run, "memory://interrupted/a") == "memory://interrupted/a"
    assert losses("memory://interrupted/a") == [0, 1, 2, 3]


def test_mv_to_a_full_disk_names_the_file_and_leaves_the_run(run: Path, small_disk: Path) -> None:
    (run / "model.pt").write_bytes(bytes(3 << 20))
    refused = run_command("mv", run, small_disk / "a", status=1)
    assert refused.stderr == "Error: model.pt: the disk is full\n"
    assert list(small_disk.iterdir()) == []
    assert losses(run) == [0, 1, 2, 3]


def test_mv_of_a_run_that_cannot_be_deleted_names_the_copy(run: Path) -> None:
    def refuse() -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(run / "run.json"))

    with before(["remove"], run / "run.json", refuse):
        refused = run_command("mv", run, "memory://kept/a", status=1)
    assert f"{run}: it is copied to memory://kept/a, but cannot be deleted: " in refused.stderr
    assert losses(run) == losses("memory://kept/a") == [0, 1, 2, 3]


def test_mv_leaves_a_run_that_is_resumed_meanwhile_where_it_is(run: Path) -> None:
    resumed = list[tensortrial.Run]()

    def resume() -> None:
        resumed.append(tensortrial.Run(run, resume=True, environment=False))
        resumed[0].log({"loss": 4.0})

    with before_opening(run / "tensors", resume), pytest.raises(RunInUse):
        move(run, "memory://resumed/a")
    with pytest.raises(RunNotFound):
        tensortrial.create_trial("memory://resumed/a")
    resumed[0].close()
    assert losses(run) == [0, 1, 2, 3, 4]


def test_mv_leaves_a_file_that_was_written_after_the_copy_of_it(run: Path) -> None:
    def write_late() -> None:
        (run / "late.txt").write_text("precious")
        (run / "model.pt").write_bytes(b"more weights")

    with before_opening(run / "tensors", write_late):
        run_command("mv", run, "memory://late/a")
    assert sorted(path.name for path in run.rglob("*")) == ["late.txt", "model.pt"]


@pytest.mark.parametrize(
    ("moment", "to"),
    [
        ("before renaming", "c"),
        ("before copying", "memory://twice/a"),
        ("while copying", "memory://twice/b"),
        ("after copying", "memory://twice/c"),
    ],
)
def test_one_of_two_moves_at_once_wins_and_the_other_is_an_error(tmp_path: Path, moment: str, to: str) -> None:
    run = tmp_path / "run"
    with tensortrial.Run(run, environment=False) as writing:
        writing.log({"loss": 3.0}, step=0)
    to = to if "://" in to else str(tmp_path / to)
    other = functools.partial(run_program, "mv", run, tmp_path / "b")
    with ExitStack() as until:
        check = before(["read"], run / "leases", other)
        if moment == "after copying":  # run.json is copied last, and then the leases are read again
            until.enter_context(before(["read"], run / "run.json", lambda: until.enter_context(check)))
        elif moment == "while copying":
            until.enter_context(before(["read"], run / "index", other))
        else:
            until.enter_context(check)
        with pytest.raises(RunNotFound, match="another process has moved or deleted") as lost:
            move(run, to)
    assert lost.value.path == str(run)
    assert losses(tmp_path / "b") == [3]
    assert not run.exists()
    with pytest.raises(RunNotFound):
        tensortrial.create_trial(to)


def test_a_run_that_is_deleted_while_it_is_moved_leaves_no_part(run: Path) -> None:
    with (
        before(["list"], run / "index", functools.partial(run_program, "rm", "-y", run)),
        pytest.raises(RunNotFound, match="another process has moved or deleted"),
    ):
        move(run, run.parent / "c")
    assert sorted(path.name for path in run.parent.rglob("*")) == ["a", "model.pt"]


def test_mv_refuses_a_folder_with_another_run_that_a_process_writes(run: Path) -> None:
    with tensortrial.Run(run / "inner", environment=False) as writing:
        writing.log({"loss": 1.0}, step=0)
        refused = run_command("mv", run, run.parent / "b", status=1)
        assert "a run is replaced, moved or deleted only if no process writes to it" in refused.stderr


@pytest.mark.parametrize("command", ["rm", "mv"])
def test_a_reader_of_a_run_that_is_gone_gets_an_error_that_says_so(run: Path, command: str) -> None:
    trial = tensortrial.create_trial(run)
    assert trial.tensor("w").value(0).tolist() == [0, 0, 0]
    run_command(command, run, *(["-y"] if command == "rm" else [run.parent / "b"]))
    for reading in (lambda: tensortrial.create_trial(run), trial.refresh):
        with pytest.raises((RunNotFound, NotARun)):
            reading()
