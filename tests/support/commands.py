"""Calls the command line in this process: a new one would import everything again.

What only a process has (a terminal, a signal, its imports) is tested in one.
"""

from __future__ import annotations

from contextlib import chdir, nullcontext
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from tensortrial.cli import main


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def run_command(*arguments: object, status: int | None = 0, cwd: Path | None = None) -> Done:
    """Return what a command printed. An error that a user would see as a traceback is raised.

    Args:
        arguments: The words after `tensortrial`.
        status: The exit status that the command must have; None allows any.
        cwd: The folder to run it in.
    """
    with chdir(cwd) if cwd else nullcontext():
        done = CliRunner().invoke(main, [*map(str, arguments)], prog_name="tensortrial", catch_exceptions=False)
    assert status in (None, done.exit_code), (done.stdout, done.stderr)
    return Done(done.exit_code, done.stdout, done.stderr)
