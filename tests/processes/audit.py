"""Reads a run of `digits_job` while it is written, and afterwards, and says what is wrong in it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from digits_job import INDEX, SESSION, Truth, Values

from tensortrial import StepState, create_trial
from tensortrial.errors import MissingCollectionFiles, RunNotFound
from tensortrial.read.trial import Trial

Digests = dict[int, str]
"""Of all that a step holds, by its global step."""
Promises = Mapping[tuple[int, int], int]
"""The last index that `hook.flush()` or `hook.close()` has published, by (session, rank)."""


@dataclass
class Audit:
    """What a reader has seen."""

    digests: Digests = field(default_factory=dict)
    """Of the available steps."""
    problems: list[str] = field(default_factory=list)
    indexes: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """Of all steps that are readable, in their order, by (session, rank)."""
    rows: int = 0


class Auditor:
    """Compares the steps of a run with what the job must have saved."""

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._truth = Truth()
        self._storage_options = storage_options
        self.trial: Trial | None = None
        self._url = url
        self.audit = Audit()

    def open(self) -> bool:
        """Open the run. Return whether it has begun."""
        if self.trial is None:
            try:
                self.trial = create_trial(self._url, storage_options=self._storage_options)
            except (RunNotFound, MissingCollectionFiles):
                return False
        return True

    def read_new(self, at_most: int = 1_000_000) -> None:
        """Read the newest of the steps that have become available."""
        assert self.trial is not None
        new = [step for step in self.trial.steps() if step not in self.audit.digests][-at_most:]
        for step in new:
            if self.trial.has_passed_step(step) is not StepState.AVAILABLE:
                self.audit.problems.append(f"step {step} is among the complete ones and not available")
        self.audit.digests |= self.read(new)

    def read_all(self) -> None:
        """Read every step again, also those that are not complete."""
        assert self.trial is not None
        self.audit.digests, self.audit.rows = {}, 0
        self.audit.indexes = {}
        complete = set(self.trial.steps())
        digests = self.read(self.trial.steps(show_incomplete_steps=True))
        self.audit.digests = {step: digest for step, digest in digests.items() if step in complete}
        self.audit.problems += [f"{path} is damaged: {error}" for path, error in self.trial.damaged.items()]
        self._count()

    def _count(self) -> None:
        assert self.trial is not None
        ((rows,),) = self.trial.sql("select count(*) from tensors").fetchall()
        if rows != self.audit.rows:
            self.audit.problems.append(f"SQL counts {rows} rows, the steps have {self.audit.rows}")

    def read(self, steps: Iterable[int]) -> Digests:
        """Compare each of these steps with what it must hold. Return their digests."""
        assert self.trial is not None
        found: dict[int, dict[str, Values]] = {step: {} for step in steps}
        if found:
            for worker, names in self._names_of(found).items():
                for name, values in self.trial.values(names, list(found), worker=worker).items():
                    for step, value in values.items():
                        found[step].setdefault(worker, {})[name] = value
        for step, workers in found.items():
            for worker, values in workers.items():
                self._compare(step, worker, values)
        return {step: digest(workers) for step, workers in found.items()}

    def _names_of(self, steps: Iterable[int]) -> dict[str, list[str]]:
        """Return the names of the tensors that each worker has saved at one of the steps, or between them."""
        assert self.trial is not None
        rows = self.trial.sql(
            "select distinct worker, name from tensors where global_step between $first and $last",
            {"first": min(steps), "last": max(steps)},
        ).fetchall()
        names: dict[str, list[str]] = {}
        for worker, name in sorted(rows):
            names.setdefault(worker, []).append(name)
        return names

    def _compare(self, step: int, worker: str, values: Values) -> None:
        where = f"step {step} of {worker}"
        self.audit.rows += len(values)
        if INDEX not in values or SESSION not in values:
            self.audit.problems.append(f"{where} has only {sorted(values)}")
            return
        session, rank, index = int(values[SESSION]), int(worker.rpartition("_")[2]), int(values[INDEX])
        expected = self._truth.values(session, rank, index)
        if values.keys() != expected.keys():
            self.audit.problems.append(f"{where} has {sorted(values)}, saved were {sorted(expected)}")
        for name in values.keys() & expected.keys():
            if values[name].shape != expected[name].shape or values[name].tobytes() != expected[name].tobytes():
                self.audit.problems.append(f"{where}, index {index} of session {session}: {name} is wrong")
        self.audit.indexes.setdefault((session, rank), []).append(index)


def digest(workers: Mapping[str, Values]) -> str:
    """Return a hash of all that a step holds."""
    hashed = hashlib.blake2b(digest_size=12)
    for worker, values in sorted(workers.items()):
        for name, value in sorted(values.items()):
            hashed.update(f"{worker} {name} {value.dtype} {value.shape} ".encode())
            hashed.update(value.tobytes())
    return hashed.hexdigest()


def follow(url: str, asked_to_end: Callable[[], bool]) -> Auditor:
    """Read every step of a run as soon as it is available, until asked to end."""
    auditor = Auditor(url)
    while not asked_to_end():
        if auditor.open():
            auditor.read_new()
        time.sleep(0.002)
    return auditor


def differences(reported: Digests, audit: Audit) -> list[str]:
    """Return a sentence for each step that was available once, and is not, or reads differently."""
    lost = [f"step {step} was available and is not any more" for step in reported if step not in audit.digests]
    changed = [
        f"step {step} reads differently than when it became available"
        for step, digest in reported.items()
        if audit.digests.get(step, digest) != digest
    ]
    return lost + changed


def broken_promises(promised: Promises, audit: Audit) -> list[str]:
    """Return a sentence for each worker that lacks steps which were published, or whose steps are out of order."""
    problems = []
    for (session, rank), last in promised.items():
        found = audit.indexes.get((session, rank), [])
        if missing := sorted(set(range(last + 1)).difference(found)):
            problems.append(f"worker_{rank} published {last + 1} steps in session {session}; {missing} are missing")
    for (session, rank), found in audit.indexes.items():
        if found != list(range(len(found))):
            problems.append(f"the steps of worker_{rank} in session {session} are {found}")
    return problems
