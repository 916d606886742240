"""Notes about a run: people write them next to what the job wrote, and they go where the run goes."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tensortrial
from support.commands import run_command
from tensortrial import Notes, annotate
from tensortrial.errors import ConfigurationError, CorruptFile, NotARun


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write(tmp_path / "runs" / "a")
    return tmp_path / "runs" / "a"


def write(path: Path) -> None:
    with tensortrial.Run(path, environment=False, on_exists="replace") as run:
        run.log({"loss": 1.0}, step=0)


def contents(run: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_run_has_no_notes_until_somebody_writes_some(run: Path) -> None:
    before = contents(run)
    assert annotate(run) == Notes()
    assert contents(run) == before
    assert annotate(run, note=" the baseline ", tags=["b", "a", "b", ""]) == Notes("the baseline", ["a", "b"])
    assert annotate(run, archived=True) == annotate(run) == Notes("the baseline", ["a", "b"], archived=True)
    assert annotate(run, note="", tags=[], archived=False) == Notes()
    after = contents(run)
    assert after.pop(str(run / "notes.json"))
    assert after == before


@pytest.mark.parametrize("given", [{"note": 5}, {"note": b"x"}, {"tags": [1]}, {"archived": "yes"}, {"archived": 1}])
def test_notes_of_another_type_are_refused_and_nothing_changes(run: Path, given: dict[str, Any]) -> None:
    before = annotate(run, note="kept", tags=["a"])
    with pytest.raises(ConfigurationError, match=f"{next(iter(given))}.* must be"):
        annotate(run, **given)
    assert annotate(run) == before


def test_a_run_that_is_written_can_be_noted(tmp_path: Path) -> None:
    with tensortrial.Run(tmp_path / "run") as running:
        running.log({"loss": 1.0}, step=0)
        annotate(tmp_path / "run", note="too slow")
        running.log({"loss": 0.5}, step=1)
    assert annotate(tmp_path / "run").note == "too slow"
    assert tensortrial.create_trial(tmp_path / "run").steps() == [0, 1]


def test_notes_move_with_their_run_and_end_with_it(run: Path) -> None:
    annotate(run, tags=["good"])
    run_command("mv", run, run.parent / "b")
    assert annotate(run.parent / "b").tags == ["good"]
    assert "files of other programs" not in run_command("verify", run.parent / "b").stdout
    write(run.parent / "b")  # another run, of which nobody has noted anything
    assert annotate(run.parent / "b") == Notes()
    annotate(run.parent / "b", tags=["good"])
    run_command("rm", run.parent / "b", "-y")
    assert not (run.parent / "b").exists()


def test_the_command_adds_and_removes_tags_and_shows_what_is_noted(run: Path) -> None:
    assert run_command("note", run).stdout == "nothing is noted\n"
    run_command("note", run, "the baseline", "--tag", "b", "--tag", "a", "--archive")
    assert run_command("note", run, "--untag", "b", "--tag", "c").stdout == "the baseline\ntags: a, c\narchived\n"
    document = json.loads(run_command("info", run, "--json").stdout)
    assert [document[key] for key in ("note", "tags", "archived")] == ["the baseline", ["a", "c"], True]


def test_tags_that_processes_add_at_once_are_all_kept(run: Path) -> None:
    program = (
        "import sys, tensortrial\n"
        "for number in range(30):\n"
        "    tensortrial.annotate(sys.argv[1], add_tags=[f'{sys.argv[2]}{number}'])"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, str(run), name]) for name in "abc"]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    assert set(annotate(run).tags) == {f"{name}{number}" for name in "abc" for number in range(30)}


def test_tags_that_threads_add_at_once_are_all_kept(run: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: annotate(run, add_tags=[str(number)]), range(64)))
    assert set(annotate(run).tags) == {str(number) for number in range(64)}


def test_damaged_notes_are_named_and_can_be_replaced(run: Path) -> None:
    annotate(run, note="the baseline")
    path = run / "notes.json"
    path.write_bytes(path.read_bytes().replace(b"baseline", b"basement"))
    with pytest.raises(CorruptFile, match=r"notes\.json"):
        annotate(run, tags=["a"])
    assert "notes.json" in run_command("verify", run, status=1).stdout
    assert annotate(run, note="", tags=["a"], archived=False) == Notes(tags=["a"])


def test_what_cannot_be_noted_is_an_error_that_says_why(run: Path) -> None:
    with pytest.raises(NotARun, match="it is not a run"):
        annotate(run.parent, note="a folder")
    with pytest.raises(ConfigurationError, match=r"such as \['paper'\]"):
        annotate(run, tags="paper")
    for option in ("--tag", "--untag"):
        assert "must not be blank, got ' '" in run_command("note", run, option, " ", status=1).stderr
