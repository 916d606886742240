"""Names that a stranger chose: they control neither a terminal nor, with --guard-formulas, a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import tensortrial
from support import warm
from support.commands import run_command
from support.runs import TRAIN, Job
from tensortrial.errors import ConfigurationError
from tensortrial.visible import sized, visible

# Clears the screen, sets the title by C1, writes over the line, shows what follows from right to left, begins a line.
NAME = "loss\x1b[2J\x9b31m\rok\u202egnp\n=cmd"
SHOWN = r"loss\x1b[2J\x9b31m\rok\u202egnp"
FORBIDDEN = "\x1b\x9b\u202e"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names") / "run"
    with Job(folder) as job:
        for value in (1.0, float("nan")):
            job.step({NAME: value, "=1+1": 2.0, "-x": 1.0}, TRAIN, collections=("losses", "c\x1b]0;x\x07"))
    return folder


# With its outputs on a terminal, and the rest of the arguments.
ON_TERMINAL = """
import os, runpy, sys
terminal = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_NOCTTY)
for output in (1, 2):
    os.dup2(terminal, output)
os.close(terminal)
runpy.run_module("tensortrial", run_name="__main__")
"""


def on_terminal(*arguments: object) -> str:
    """What a command prints, on both streams, to a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "200"}
    with warm.start(["-c", ON_TERMINAL, os.ttyname(theirs), *arguments], env=environment) as process:
        process.stdout.read()  # the process has opened the terminal
        os.close(theirs)
        printed = b""
        while data := _read(ours):
            printed += data
        os.close(ours)
    return printed.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end was closed
        return b""


def test_visible_leaves_words_and_shows_controls() -> None:
    assert visible("weights/é 层 שלום\n") == "weights/é 层 שלום\n"
    assert visible(NAME) == SHOWN + "\n=cmd"
    assert visible("a\x7f\x00\u2028\u200f\u2066\ud800") == r"a\x7f\x00\u2028\u200f\u2066\ud800"


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(1, "1 byte"), (999, "999 bytes"), (16_600, "16.6 kB"), (1_500_000, "1.5 MB"), (2e12, "2,000.0 GB")],
)
def test_a_size_has_the_unit_in_which_it_is_above_one(nbytes: int, text: str) -> None:
    assert sized(nbytes) == text


@pytest.mark.parametrize(
    "arguments",
    [
        ("names",),
        ("show",),
        ("follow",),
        ("sql", "select name from tensors"),
        ("sql", "select cast(name as int) from tensors"),
        ("query", "losses"),
        ("query", "best_runs"),
        ("watch", "--rule", "ExplodingTensor", "--no-record"),
    ],
    ids=" ".join,
)
def test_a_terminal_gets_no_control_of_a_name(run: Path, arguments: tuple[str, ...]) -> None:
    command, *rest = arguments
    printed = on_terminal(command, *([rest[0], run, *rest[1:]] if command == "query" else [run, *rest]))
    assert not set(FORBIDDEN) & set(printed), printed
    assert "\r" not in printed
    assert r"\x1b" in printed


@pytest.mark.parametrize(
    "arguments", [("show",), ("follow",), ("sql", "select name from tensors")], ids=lambda arguments: arguments[0]
)
def test_a_line_break_in_a_name_begins_no_line(run: Path, arguments: tuple[str, ...]) -> None:
    printed = run_command(arguments[0], run, *arguments[1:]).stdout
    assert r"egnp\n=cmd" in printed
    assert not any(line.lstrip().startswith("=cmd") for line in printed.splitlines())


@pytest.mark.parametrize("command", ["ls", "info", "show", "diagnose"])
def test_a_line_break_in_the_name_of_a_run_begins_no_line(tmp_path: Path, command: str) -> None:
    with Job(tmp_path / "one\ntwo") as job:
        job.step({"loss": 1.0}, TRAIN)
    printed = run_command(command, tmp_path if command == "ls" else tmp_path / "one\ntwo").stdout
    assert r"one\ntwo" in printed
    assert not any(line.lstrip().startswith("two") for line in printed.splitlines())


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "one\ntwo"),
        ("ls", "one\ntwo"),
        ("report", "one\ntwo"),
        ("verify", "one\ntwo"),
        ("rm", "--yes", "one\ntwo"),
        ("demo", "file/one\ntwo"),
        ("ls", "run", "--output", "one\ntwo/none"),
        ("tensor", "run", "one\ntwo"),
        ("info", "run", "--one\ntwo"),
        ("one\ntwo",),
    ],
    ids=str,
)
def test_a_line_break_in_an_argument_does_not_split_the_error(run: Path, arguments: tuple[str, ...]) -> None:
    (run.parent / "file").touch()
    *_, error = run_command(*arguments, cwd=run.parent, status=None).stderr.splitlines()
    assert error.startswith("Error: ")
    assert r"one\ntwo" in error


@pytest.mark.parametrize("command", ["rm", "mv", "report"])
def test_a_line_break_in_the_name_of_a_run_does_not_split_what_was_done(tmp_path: Path, command: str) -> None:
    for name in ("one\ntwo", "other"):
        with Job(tmp_path / name) as job:
            job.step({"loss": 1.0}, TRAIN)
    more = {"rm": ["--yes"], "mv": ["three\nfour"], "report": ["--output", "three\nfour"]}[command]
    (line,) = run_command(command, "one\ntwo", *more, cwd=tmp_path).stdout.splitlines()
    assert ("one" if command == "rm" else "three") + "\\n" in line


def test_the_lines_of_a_note_and_of_the_error_of_a_query_stay_lines(run: Path) -> None:
    assert run_command("note", run, "one\ntwo", "--tag", "a\tb").stdout.splitlines() == ["one", "two", "tags: a\tb"]
    assert len(run_command("sql", run, "select none from tensors", status=1).stderr.splitlines()) > 1


def test_names_that_an_encoding_lacks_are_escaped(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        job.step({"grad→é": 1.0}, TRAIN)
    line = [sys.executable, "-m", "tensortrial", "names", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(line, capture_output=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"grad\\u2192\xe9\n")


def test_what_programs_read_holds_names_as_they_are(run: Path) -> None:
    def output(*arguments: object) -> str:
        return run_command(*arguments).stdout

    query = "select distinct name from tensors order by name"
    assert [json.loads(line)["name"] for line in output("sql", run, query, "--format", "json").splitlines()][-1] == NAME
    assert NAME in output("names", run)
    plain = list(csv.reader(io.StringIO(output("sql", run, query, "--format", "csv"), newline="")))
    guarded = list(
        csv.reader(io.StringIO(output("sql", run, query, "--format", "csv", "--guard-formulas"), newline=""))
    )
    assert [cell for (cell,) in plain] == ["name", "-x", "=1+1", NAME]
    assert [cell for (cell,) in guarded] == ["name", "'-x", "'=1+1", NAME]


def test_an_exported_csv_can_be_guarded(run: Path, tmp_path: Path) -> None:
    for options in ({}, {"guard_formulas": True}):
        target = tmp_path / str(len(options))
        tensortrial.export(run, f"csv:{target}", tables=["scalars"], progress=False, **options)
        (path,) = target.rglob("*.csv")
        rows = list(csv.DictReader(io.StringIO(path.read_bytes().decode(), newline="")))
        sign = "'" if options else ""
        assert {row["name"] for row in rows} == {NAME, f"{sign}=1+1", f"{sign}-x"}
        assert {float(row["value"]) for row in rows if row["name"] != NAME} == {1.0, 2.0}
    with pytest.raises(ConfigurationError, match="guard_formulas must be true or false, got 'maybe'"):
        tensortrial.export(run, f"csv:{tmp_path}", progress=False, guard_formulas="maybe")
