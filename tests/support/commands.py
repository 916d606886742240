"""Runs commands: as functions, as a new process would import everything again, or as programs.

What only a process has (a terminal, a signal, its imports) is tested in one.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, nullcontext
from pathlib import Path

from click.testing import CliRunner

from tensortrial.cli import main


def run_command(
    *arguments: object, status: int | None = 0, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Call a command. An error that a user would see as a traceback is raised.

    Args:
        *arguments: The words after `tensortrial`.
        status: The exit status that the command must have; None allows any.
        cwd: The folder to run it in.
        **environment: Variables of the environment, in addition to those that are set.

    Returns:
        The status, and what the command printed, none of it on a terminal.
    """
    words = [str(argument) for argument in arguments]
    with chdir(cwd) if cwd else nullcontext(), _no_handlers():
        runner = CliRunner(env=environment)
        done = runner.invoke(main, words, prog_name="tensortrial", catch_exceptions=False)
    assert status in (None, done.exit_code), (done.stdout, done.stderr)
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def run_program(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, which imports what this command needs and nothing else."""
    line = [sys.executable, "-m", "tensortrial", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


@contextmanager
def _no_handlers() -> Iterator[None]:
    """Print warnings that are logged, as a process does in which nobody has configured logging."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        yield
    finally:
        root.handlers = handlers
