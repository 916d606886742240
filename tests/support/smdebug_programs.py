"""The programs in tests/smdebug/programs, what they print, and processes that run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Self

FOLDER = Path(__file__).resolve().parents[1] / "smdebug" / "programs"
PROGRAMS = sorted(FOLDER.glob("*/*.py"))
RUNNER = FOLDER.parent / "run_programs.py"
# The variables that make a program print the same each time; a program of smdebug's logs nothing.
VARIABLES = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "3"}


def name_of(program: Path) -> str:
    """Return the name that a test shows, `saving/each_step`."""
    return str(program.relative_to(FOLDER).with_suffix(""))


def framework_of(program: Path) -> str:
    """Return the package that a program needs: what its folder is named after, or torch."""
    return program.parent.name if program.parent.name in ("mxnet", "tensorflow", "xgboost") else "torch"


def has_framework(name: str) -> bool:
    """Return whether this environment has a framework in the version that smdebug knew: Keras 2, not 3."""
    if find_spec(name) is None:
        return False
    try:
        return name != "tensorflow" or version("keras") < "3"
    except PackageNotFoundError:
        return False


def recorded(program: Path) -> str:
    """Return what smdebug printed."""
    return program.with_suffix(".out").read_text()


def difference(program: Path) -> tuple[str, str] | None:
    """Return why this project prints something else, and what; None if it prints the same."""
    path = program.with_suffix(".differs")
    if not path.exists():
        return None
    reason, _, printed = path.read_text().partition("\n\n")
    return reason, printed


def is_not_possible(program: Path) -> bool:
    """Return whether a program uses what is not part of this project."""
    differs = difference(program)
    return differs is not None and any(text in differs[0] for text in ("not part of this project", "not called here"))


def counts(programs: list[Path]) -> tuple[int, int, int, int]:
    """Return how many programs there are, print the same, differ on purpose, and use what is not here."""
    missing = sum(map(is_not_possible, programs))
    differing = sum(difference(program) is not None for program in programs) - missing
    return len(programs), len(programs) - differing - missing, differing, missing


class Runner:
    """A process that runs programs of one framework, each in a child."""

    def __init__(self, framework: str, python: str | None = None) -> None:
        """Start the process, with this project's aliases, or with the smdebug of another Python."""
        environment = {**os.environ, **VARIABLES}
        if python is None:
            environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
        else:
            environment.pop("PYTHONPATH", None)
        command = [python or sys.executable, str(RUNNER), framework, *([] if python else ["--alias"])]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        ready = self._process.stdout.readline()
        if not ready:
            with self._process:  # closes its streams, too
                status = self._process.wait()
            raise RuntimeError(f"{' '.join(command)} ended with status {status}")

    def run(self, program: Path, folder: Path) -> dict[str, str]:
        """Run a program in a folder. Return what it printed, and what it wrote to standard error."""
        waits = recorded(program).endswith("did not end\n")
        request = {"program": str(program), "folder": str(folder), "seconds": 5 if waits else 60}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, str] = json.loads(self._process.stdout.readline())
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
