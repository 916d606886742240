"""The identity of a process, such that another process can find out whether it still runs."""

from __future__ import annotations

import functools
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..format.documents import Whole

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """Names one process among all that ever ran, on any machine."""

    id: Annotated[int, Whole(1, (1 << 31) - 1)]
    """The process id, which the operating system uses again."""
    started: str = ""
    """The time at which the kernel started the process, in ticks since the boot; empty where it is unknown."""
    host: str = ""
    boot: str = ""
    """The boot of the machine and the namespace in which `id` counts; empty where the system does not say. Containers
    of one machine share the boot, but each counts its processes for itself."""

    def __str__(self) -> str:
        own = " (this process)" if self == this_process() else ""
        return f"process {self.id} on host {self.host!r}{own}"

    @property
    def is_local(self) -> bool:
        """Return whether this process can see the other one: both run on one machine, in one namespace."""
        return bool(self.boot and self.started) and self.boot == _boot() and self.host == socket.gethostname()

    @property
    def runs(self) -> bool:
        """Return whether a local process still runs. A later process with the same id is told apart by its start."""
        started = _started(self.id)
        if started is not None:
            return started == self.started
        try:
            os.kill(self.id, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # it runs, and is hidden from this user
        return False  # it ended, and its parent has not noticed yet


def this_process() -> Process:
    """Return the identity of the calling process."""
    return _identity(os.getpid())


@functools.lru_cache(maxsize=1)
def _identity(number: int) -> Process:
    return Process(number, _started(number) or "", socket.gethostname(), _boot())


@functools.lru_cache(maxsize=1)
def _boot() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return ""


def _started(number: int) -> str | None:
    """Return when a process was started; None if it does not run any more, or cannot be seen."""
    try:
        text = (_PROC / str(number) / "stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses, which may hold spaces and parentheses itself.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]
