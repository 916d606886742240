"""The command line: called as a function, for tests of what a command prints and how it ends, or as a program."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from click.testing import CliRunner

from tensortrial.cli import main


def tensortrial(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command. An error that a user would see as a traceback is raised.

    Args:
        *arguments: The name of the command, and its arguments.
        **environment: Variables of the environment, in addition to those that are set.

    Returns:
        The status, and what it printed, none of it on a terminal.
    """
    words = [str(argument) for argument in arguments]
    with _no_handlers():
        done = CliRunner(env=environment).invoke(main, words, catch_exceptions=False)
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def tensortrial_program(*arguments: object) -> subprocess.CompletedProcess[str]:
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
