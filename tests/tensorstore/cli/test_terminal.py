"""The command line in a terminal and outside of one: completion by a shell, progress bars, and paths with mistakes."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import termios
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from support.commands import run_command
from support.runs import TRAIN, Job
from tensortrial.cli import main

PROGRAM = "import sys; from tensortrial.cli import main; sys.exit(main(prog_name='tensortrial'))"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `good`, of many small index files."""
    place = tmp_path_factory.mktemp("terminal")
    with Job(place / "good") as job:
        for step in range(8):
            job.step({"loss": 1.0, "w": np.full(3, np.nan if step == 7 else 1.0)}, TRAIN, statistics=("l2",))
            job.flush()
    return place


def in_terminal(place: Path, *arguments: str) -> bytes:
    """Return what a command writes to a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], cwd=place, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 65536):
            written += part
    except OSError:
        pass  # Linux: the terminal has no other end any more
    finally:
        os.close(ours)
    process.wait(timeout=60)
    assert b"Traceback" not in written, written.decode()
    return written.replace(b"\r\n", b"\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls", "."),
        ("info", "*"),
        ("show", "good"),
        ("names", "good"),
        ("steps", "good"),
        ("follow", "good", "-n", "1"),
        ("sql", "good", "from steps"),
        ("query", "good", "losses"),
        ("watch", "good", "--rule", "ExplodingTensor", "--no-record"),
        ("verify", "good"),
        ("compare", "good", "good"),
        ("export", "good", "csv:exported"),
        ("compact", "copy", "--grace", "0"),
        ("repair", "good"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_command_overwrites_lines_of_a_file(
    place: Path, capfdbinary: pytest.CaptureFixture[bytes], arguments: tuple[str, ...]
) -> None:
    shutil.rmtree(place / "copy", ignore_errors=True)
    if "copy" in arguments:
        shutil.copytree(place / "good", place / "copy")
    # Not by `run_command`, because libraries in C write to the descriptors.
    with chdir(place), pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code in (0, 1)
    written = b"".join(capfdbinary.readouterr())
    assert written
    assert b"\r" not in written
    assert b"\x1b" not in written


def test_a_long_command_shows_a_bar_in_a_terminal(place: Path) -> None:
    pytest.importorskip("tqdm")
    assert b"\r" in in_terminal(place, "verify", "good")


def test_show_says_that_the_last_value_is_not_finite(place: Path) -> None:
    assert "the last value is nan" in run_command("show", place / "good").stdout


@pytest.mark.parametrize("command", ["info", "show", "names", "steps", "follow", "verify", "repair", "compact"])
def test_a_mistyped_path_names_the_run_next_to_it(place: Path, command: str) -> None:
    done = run_command(command, "goood", status=None, cwd=place)
    assert done.returncode
    assert "no run was found here; did you mean 'good'?" in done.stderr


@pytest.mark.parametrize("command", ["ls", "page", "report"])
def test_a_command_of_many_runs_says_that_there_is_none(place: Path, command: str) -> None:
    pytest.importorskip("starlette")
    done = run_command(command, "goood", status=None, cwd=place)
    assert done.returncode
    assert "there is no run here" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_commands_runs_queries_and_rules(place: Path, tmp_path: Path, shell: str) -> None:
    pexpect = pytest.importorskip("pexpect")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "tensortrial"
    program.write_text(f"#!{sys.executable}\n{PROGRAM}\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(tmp_path)}
    flags = {"bash": ["--norc", "-i"], "zsh": ["-f", "-i"]}[shell]
    terminal = pexpect.spawn(shell, flags, env=environment, cwd=str(place), encoding="utf8", timeout=60)
    try:
        prepare = "autoload -U compinit; compinit -u; " if shell == "zsh" else ""
        terminal.sendline(f'{prepare}eval "$(_TENSORTRIAL_COMPLETE={shell}_source tensortrial)"; echo REA""DY')
        terminal.expect_exact("READY")
        for typed, expected in [
            ("tensortrial nam", "names "),
            ("tensortrial info goo", "info good/"),
            ("tensortrial query good dead_l", "dead_layers"),
            ("tensortrial watch good --rule Vanish", "VanishingGradient"),
        ]:
            terminal.send(f"{typed}\t")
            terminal.expect_exact(expected)
            terminal.send("\x15")  # Ctrl-U: delete the line
    finally:
        terminal.close(force=True)
