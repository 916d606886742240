"""What can go wrong with one call of the storage, and plans that say which call it strikes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol


class HttpError(Exception):
    """An error of an S3 client, with the status of the answer."""

    __module__ = "botocore.exceptions"  # by which `translated` knows it

    def __init__(self, status: int) -> None:
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": f"Simulated{status}"}}
        super().__init__(f"simulated HTTP status {status}")


def _os_error(number: int) -> Callable[[], Exception]:
    return lambda: OSError(number, "simulated")


ERRORS: Mapping[str, Callable[[], Exception]] = {
    "EIO": _os_error(errno.EIO),
    "ENOSPC": _os_error(errno.ENOSPC),
    "EACCES": lambda: PermissionError(errno.EACCES, "simulated"),
    "500": lambda: HttpError(500),
    "503": lambda: HttpError(503),
    "reset": lambda: ConnectionResetError(errno.ECONNRESET, "simulated"),
}

LOCAL_ERRORS, REMOTE_ERRORS = ("EIO", "ENOSPC", "EACCES"), ("500", "503", "reset")


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong with a call.

    `kind` is "crash" (the process is killed), "cut" (all of them, by a loss of power), "error", "slow" or "old" (a
    listing shows what was there before).
    """

    kind: str
    error: str = ""
    after: bool = False
    """Whether the call has had its effect: only its answer is lost."""
    seconds: float = 0.0

    def __str__(self) -> str:
        detail = self.error or (f"{self.seconds:g} s" if self.seconds else "")
        return f"{self.kind}{detail and ' ' + detail}{' after the effect' if self.after else ''}"


def faults_at(number: int, is_local: bool) -> list[Fault]:
    """Return the faults that are tried at each call, here at that of a number. The kinds of errors take turns."""
    errors = LOCAL_ERRORS if is_local else REMOTE_ERRORS
    error = errors[number % len(errors)]
    faults = [Fault("crash"), Fault("crash", after=True), Fault("error", error), Fault("error", error, after=True)]
    return [*faults, *([Fault("cut")] if is_local else []), Fault("slow", seconds=150.0), Fault("old", seconds=20.0)]


class Plan(Protocol):
    """Decides what goes wrong."""

    def fault(self, number: int, call: str) -> Fault | None:
        """Return what goes wrong with the call of this number, counted from 0."""
        ...


class NoFaults:
    """Nothing goes wrong."""

    def fault(self, number: int, call: str) -> Fault | None:
        del number, call
        return None


@dataclass(frozen=True)
class FaultAt:
    """One fault, at one call."""

    number: int
    what: Fault

    def fault(self, number: int, call: str) -> Fault | None:
        del call
        return self.what if number == self.number else None


class RandomFaults:
    """Faults at random calls, as often as a seed says."""

    def __init__(self, rng: Random, is_local: bool) -> None:
        self._rng = rng
        self._errors = LOCAL_ERRORS if is_local else REMOTE_ERRORS
        self._rate = rng.choice([0.0, 0.002, 0.01, 0.05])
        kinds = ["error", "slow", "old", "crash"]
        self._kinds = rng.sample(kinds, rng.randint(1, len(kinds)))
        self._crashes = 4

    def fault(self, number: int, call: str) -> Fault | None:
        del number, call
        rng = self._rng
        if rng.random() >= self._rate:
            return None
        kind = rng.choice(self._kinds)
        if kind == "error":
            return Fault("error", rng.choice(self._errors), after=rng.random() < 0.5)
        if kind == "crash":
            self._crashes -= 1
            return Fault("crash", after=rng.random() < 0.5) if self._crashes >= 0 else None
        return Fault(kind, seconds=rng.choice([0.5, 5.0, 25.0, 150.0] if kind == "slow" else [1.0, 20.0]))
