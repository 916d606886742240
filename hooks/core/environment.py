"""What a run was made with and where: the commit, the command, the machine, the packages and the seeds."""

from __future__ import annotations

import os
import platform
import random
import socket
import subprocess
import sys
import zlib
from importlib import metadata
from typing import Any

_GIT_SECONDS = 5.0


def environment(
    *, git: bool = True, command: bool = True, host: bool = True, packages: bool = True, seeds: bool = True
) -> dict[str, Any]:
    """Return what the program runs with and where, to be kept with a run.

        tt.Hook("runs/x", metadata={"lr": 0.1, **tensortrial.environment()})

    A command line may contain secrets: `command=False` leaves it out.

    Args:
        git: `git_commit`, and `git_dirty`: whether tracked files differ from it. Nothing outside of a repository.
        command: `command`, the command line as a list, and `working_directory`.
        host: `host`, `platform`, `cpus` and `process_id`.
        packages: `packages`, the versions of all installed packages by name.
        seeds: `seeds`: PYTHONHASHSEED, and PyTorch's initial seed if PyTorch has been imported. Python's and numpy's
            generators do not know theirs; of Python's, `python_state` is a number that is the same for the same state.

    Returns:
        Values that JSON can hold.
    """
    found: dict[str, Any] = _git() if git else {}
    if command:
        found |= {"command": list(getattr(sys, "orig_argv", sys.argv)), "working_directory": os.getcwd()}
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
    commit = _git_output("rev-parse", "HEAD")
    if not commit:
        return {}
    changes = _git_output("status", "--porcelain", "--untracked-files=no")
    return {"git_commit": commit} | ({} if changes is None else {"git_dirty": bool(changes)})


def _git_output(*arguments: str) -> str | None:
    """Return what git prints; None if it is missing, fails, or takes too long."""
    # A status would otherwise write the index of the repository.
    command = ["git", "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_GIT_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _packages() -> dict[str, str]:
    pairs = ((each.metadata["Name"], each.version) for each in metadata.distributions())
    return dict(sorted((str(name), str(version)) for name, version in pairs if name))


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
