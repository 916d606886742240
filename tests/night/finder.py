"""A finder of rare failures: it runs random cases, and each can be repeated by its number.

A finder is a module of this folder with a context manager `prepared(folder)`, which returns a function that runs one
case. A case draws all that is random from a generator of its own, so a case of the same number is the same case. It
fails by an exception, also if it takes minutes; the cases after it are run all the same.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

Case: TypeAlias = Callable[[Random, Path], Counter[str]]
"""Runs one case in an empty folder, and returns what it counted. It raises an exception if something is wrong."""
Prepared: TypeAlias = Callable[[Path], AbstractContextManager[Case]]

PATIENCE_SECONDS = 400
"""For one case. It takes seconds; a machine may be busy."""


def always(case: Case) -> Prepared:
    """Return the `prepared` of a finder whose cases need nothing that is prepared."""
    return lambda folder: nullcontext(case)


class CannotRun(Exception):
    """This machine lacks something that a finder needs."""


@dataclass
class Totals:
    """The result of many cases."""

    cases: int = 0
    counted: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = "".join(f", {count} {what}" for what, count in sorted(self.counted.items()))
        return f"{self.cases} cases{counts}; {len(self.failures)} failed"


def run_cases(name: str, prepared: Prepared, numbers: Iterable[int], seconds: float, seed: int) -> Totals:
    """Run cases one after another, and print each failure with the command that repeats it.

    Args:
        name: The finder's, for the command.
        prepared: The context manager of the finder.
        numbers: The numbers of the cases. At least one is run.
        seconds: How long cases are begun.
        seed: With a case's number, it determines the case.
    """
    totals, end = Totals(), time.monotonic() + seconds
    signal.signal(signal.SIGALRM, _give_up)
    with tempfile.TemporaryDirectory(prefix=f"tensortrial-{name}-") as folder, prepared(Path(folder)) as case:
        for number in numbers:
            own = Path(folder) / f"case{number}"
            own.mkdir()
            totals.cases += 1
            signal.alarm(PATIENCE_SECONDS)
            try:
                totals.counted += case(Random(f"{seed}/{number}"), own)
            except CannotRun:
                raise
            except Exception:  # noqa: BLE001 - printed
                again = f"again: make night ONLY={name} SEED={seed} CASE={number}"
                totals.failures.append(f"case {number} of seed {seed}:\n{traceback.format_exc()}{again}")
                print(totals.failures[-1], flush=True)
            finally:
                signal.alarm(0)
                shutil.rmtree(own, ignore_errors=True)
            if time.monotonic() > end:
                break
    return totals


def _give_up(*_: Any) -> None:
    raise TimeoutError(f"the case took more than {PATIENCE_SECONDS} s")
