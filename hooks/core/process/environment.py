"""The environment of a run: the commit, the command, the machine, the packages and the seeds."""

from __future__ import annotations

import functools
import os
import platform
import random
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from tensortrial.config.metadata import Environment
from tensortrial.config.reduction_config import names
from tensortrial.errors import ConfigurationError
from tensortrial.interrupts import Event
from tensortrial.redaction import without_secrets
from tensortrial.truth import truth_of

from ..log import logger

PARTS = ("git", "command", "host", "packages", "seeds", "optimizers", "activations")
_OF_HOOK = frozenset({"optimizers", "activations"})
"""The parts that the hook adds."""
VARIABLE = "TENSORTRIAL_ENVIRONMENT"
"""0 keeps nothing, "git,host" keeps these parts. It overrides a hook's argument."""

_GIT_SECONDS = 5.0


def environment(
    *, git: bool = True, command: bool = True, host: bool = True, packages: bool = True, seeds: bool = True
) -> Environment:
    """Return facts about the program and its machine, to keep with a run.

        tt.Hook("runs/x", metadata={"lr": 0.1, **tensortrial.environment()})

    In the command line, `***` replaces what looks like a secret: values of names like `--api-key`, users, passwords and
    queries in URLs, and tokens of known forms. `command=False` leaves the command line out.

    Args:
        git: `git_commit`, and `git_dirty`: whether tracked files differ from it. Nothing outside of a repository.
        command: `command`, the command line as a list, and `working_directory`.
        host: `host`, `platform`, `cpus` and `process_id`.
        packages: `packages`, the versions of all installed packages by name, with `-` for `_`.
        seeds: `seeds`: PYTHONHASHSEED, and PyTorch's initial seed if PyTorch has been imported. Python's and numpy's
            generators do not know their seeds; `python_state` is a digest of the state of Python's.

    Returns:
        Values that JSON can hold.
    """
    found = Environment(_git() if git else {})
    if command:
        found |= {"command": without_secrets(getattr(sys, "orig_argv", sys.argv)), "working_directory": os.getcwd()}
    if host:
        found |= {
            "host": socket.gethostname(),
            "platform": platform.platform(),
            "cpus": os.cpu_count(),
            "process_id": os.getpid(),
        }
    if packages:
        found["packages"] = _packages()
    if seeds:
        found["seeds"] = _seeds()
    return found


def _git() -> dict[str, Any]:
    # One process tells both. It fails outside of a repository, and takes too long in a large one.
    status = _git_output("status", "--porcelain=v2", "--branch", "--no-ahead-behind", "--untracked-files=no")
    if status is None:
        return {"git_commit": commit} if (commit := _git_output("rev-parse", "HEAD")) else {}
    commit = status.partition("\n")[0].removeprefix("# branch.oid ")
    is_dirty = any(not line.startswith("#") for line in status.splitlines())
    return {} if commit == "(initial)" else {"git_commit": commit, "git_dirty": is_dirty}


def _git_output(*arguments: str) -> str | None:
    """Return what git prints; None if it is missing, fails, or takes too long."""
    # A status would otherwise write the index of the repository.
    # No program that the repository configures is run, and no password asked for.
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_GIT_SECONDS,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@functools.cache
def _packages() -> dict[str, str]:
    """Return the versions of the installed packages, as the names of their folders say them.

    `importlib.metadata` parses a file of each, which takes twenty times as long.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            stem, ending = os.path.splitext(entry)
            package, _, version = stem.partition("-")
            if ending in (".dist-info", ".egg-info") and version:
                # The first one on the path is the one that is imported.
                found.setdefault(package.replace("_", "-"), version.partition("-")[0])
    return dict(sorted(found.items()))


def _seeds() -> dict[str, Any]:
    found: dict[str, Any] = {
        "python_state": zlib.crc32(repr(random.getstate()).encode()),
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED"),
    }
    # Not imported for this: it takes seconds.
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "initial_seed"):
        found["torch"] = torch.initial_seed()
    return found


def parse_parts(value: bool | Iterable[str] | str) -> frozenset[str]:
    """Return the parts of the environment to keep: those of TENSORTRIAL_ENVIRONMENT, else those of a hook's argument.

    Raises:
        ConfigurationError: A part is unknown.
    """
    variable = os.environ.get(VARIABLE, "").strip()
    if variable:
        value = variable if (truth := truth_of(variable)) is None else truth
    if isinstance(value, bool):
        return frozenset(PARTS if value else ())
    found = frozenset(names(value, "environment"))
    for each in found - set(PARTS):
        raise ConfigurationError(f"environment must be True, False or some of {', '.join(PARTS)}, got {each!r}")
    return found


class KeptEnvironment:
    """Some parts of the environment of a run, read by a thread of its own while training begins.

    Only the first worker of the job, which `leads`, keeps the commit and the packages.
    """

    def __init__(self, parts: frozenset[str], leads: bool) -> None:
        self._parts, self._leads = parts, leads
        self._found: dict[str, Any] = {}
        self.is_read = Event()
        """Set once all but git is read."""
        self._added: dict[str, dict[str, Any]] = {}
        self.is_new = False
        """True if something was added since the last call of `values`."""

    def read(self) -> None:
        """Begin to read. Nothing waits for git, which may take its time on a slow disk."""
        if self._parts - _OF_HOOK:
            threading.Thread(target=self._read, name="tensortrial-environment", daemon=True).start()
        else:
            self.is_read.set()

    def _read(self) -> None:
        parts = self._parts - (set() if self._leads else {"git", "packages"})
        try:
            for some in (parts - {"git"}, parts & {"git"}):
                found = environment(**{each: each in some for each in PARTS if each not in _OF_HOOK})
                self._found, self.is_new = {**self._found, **found}, True
                self.is_read.set()
        except Exception:  # the training goes on without it
            logger.warning("the environment is not kept with the run", exc_info=True)
            self.is_read.set()

    def add(self, part: str, values: Mapping[str, Any]) -> None:
        """Keep the hyperparameters of optimizers, or the classes of activation functions, by their names."""
        if part in self._parts and values:
            self._added.setdefault(part, {}).update(values)
            self.is_new = True

    def values(self) -> dict[str, Any]:
        """Return what has been read by now."""
        self.is_new = False
        return {**self._found, **{part: dict(values) for part, values in self._added.items()}}
