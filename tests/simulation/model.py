"""What a run must hold: what workers saved, what they know to be published, and what readers have seen."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np

from simulation.disk import WRITEBACK_SECONDS
from simulation.world import World
from support.internals import ENDED_RESCAN_SECONDS, newest_session
from tensortrial.errors import FileError, TensorTrialError
from tensortrial.format.schema import WorkerInfo
from tensortrial.read.opening import no_refresh
from tensortrial.read.step_states import StepState
from tensortrial.read.trial import Trial

Array: TypeAlias = np.ndarray[Any, Any]
Key: TypeAlias = tuple[str, int]
"""A worker, and a global step."""


class Wrong(AssertionError):
    """The run does not hold what it must hold."""


@dataclass
class Saved:
    """What one process saved as a worker at a step."""

    worker: str
    session: int
    process: int
    global_step: int
    mode: str
    mode_step: int
    values: dict[str, Array] = field(default_factory=dict, repr=False)
    closed: bool = False
    may_be_superseded: bool = False
    """Whether a later session has gone back to this step or one before it."""

    @property
    def key(self) -> Key:
        return self.worker, self.global_step


@dataclass
class Seen:
    """What a reader sees of a run at one moment."""

    steps: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The mode of each global step, and its step in that."""
    values: dict[Key, dict[str, Array]] = field(default_factory=lambda: defaultdict(dict))
    available: list[int] = field(default_factory=list)
    damaged: set[int] = field(default_factory=set)
    """The steps of which something is damaged."""
    ended: bool = False
    session: int = 0
    """The newest one that has claimed the run."""


class Model:
    """Compares what readers see with what workers saved."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.durable = False
        """Whether a loss of power loses nothing that was published."""
        self.saved: dict[Key, list[Saved]] = defaultdict(list)
        self._published: dict[Key, tuple[float, Saved]] = {}
        self._seen_available: dict[Key, tuple[float, Saved]] = {}
        """What was visible at a step that was available to a reader."""
        self.marked = False
        """Whether somebody has marked a worker as ended that may have been alive."""
        self._final: set[Key] = set()
        self._ended_session: int | None = None
        self._newest_process = 0
        self.torn = False
        """Whether files may be damaged, or be gone, by a loss of power."""
        self.checks = 0
        self._went_back: set[tuple[int, int]] = set()
        """The sessions that went back, with their first global steps."""
        self._superseded: list[tuple[float, Saved]] = []
        world.on_claim = self._claimed

    # What workers do.

    def add(self, saved: Saved) -> None:
        """Note what a worker is about to save."""
        self.saved[saved.key].append(saved)
        self._note_superseded(saved)

    def _claimed(self, data: bytes) -> None:
        """Note that a session is about to supersede what earlier ones saved after its first step."""
        claim = json.loads(data)
        if claim["goes_back"]:
            self._went_back.add((claim["session"], claim["first_global_step"]))
            for saved in itertools.chain(*self.saved.values()):
                self._note_superseded(saved)

    def _note_superseded(self, saved: Saved) -> None:
        saved.may_be_superseded |= any(
            saved.session < session and saved.global_step >= first for session, first in self._went_back
        )

    def has_claimed(self, claim: WorkerInfo) -> None:
        """Note that a worker has superseded what it had to, without a failure."""
        known = {id(saved) for _, saved in self._superseded}
        for since, saved in self._published.values():
            is_later = saved.session < claim.session and saved.global_step >= claim.first_global_step
            was_there = since < datetime.fromisoformat(claim.started_at).timestamp()
            if claim.goes_back and saved.worker == claim.worker and is_later and was_there and id(saved) not in known:
                self._superseded.append((self._now(), saved))

    def published(self, steps: list[Saved]) -> None:
        """Note steps whose publication their worker was notified of."""
        for saved in steps:
            if saved.closed and saved.values:
                before = self._published.get(saved.key)
                if before is None or (before[1].may_be_superseded and before[1].session < saved.session):
                    self._published[saved.key] = self._now(), saved

    def power_was_cut(self) -> None:
        """Forget what may be lost."""
        if self._world.disk.is_local:
            self.torn = True
            before = self._now() - WRITEBACK_SECONDS - 5
            if not self.durable:
                self._published = {key: each for key, each in self._published.items() if each[0] <= before}
                self._seen_available = {key: each for key, each in self._seen_available.items() if each[0] <= before}

    def _now(self) -> float:
        return self._world.scheduler.now

    # What readers see.

    def expected(self, had_ended: bool = False) -> dict[Key, Saved]:
        """Return what a reader must see that refreshes after this.

        With `had_ended`, the job had ended when the reader refreshed last: then it refreshes once a second.
        """
        at = self._now() - (ENDED_RESCAN_SECONDS if had_ended else 0)
        known = {**self._seen_available, **self._published}
        return {key: saved for key, (since, saved) in known.items() if since <= at and not saved.may_be_superseded}

    def superseded(self, had_ended: bool = False) -> list[Saved]:
        """Return what a reader must not see that refreshes after this."""
        at = self._now() - (ENDED_RESCAN_SECONDS if had_ended else 0)
        return [saved for since, saved in self._superseded if since <= at]

    def look(self, trial: Trial) -> tuple[Seen, Mapping[Key, Saved]]:
        """Read all of a run, and check that nothing of it is wrong."""
        seen = self._look(trial)
        self.checks += 1
        found = {key: self._match(seen, key, values) for key, values in seen.values.items()}
        for key, saved in found.items():
            same = [other for other in found.values() if other.global_step == key[1]]
            if seen.steps[key[1]] not in [(other.mode, other.mode_step) for other in same]:
                raise Wrong(f"{key} has the mode and step {seen.steps[key[1]]}, and not {saved.mode, saved.mode_step}")
            if key[1] in seen.available and not saved.may_be_superseded:
                before = self._seen_available.setdefault(key, (self._now(), saved))[1]
                if before.may_be_superseded:
                    self._seen_available[key] = self._now(), saved
                elif before is not saved:
                    raise Wrong(f"{key} was {before} when it was available, and is {saved} now")
        return seen, found

    def check_kept(self, seen: Seen, found: Mapping[Key, Saved], expected: Mapping[Key, Saved]) -> None:
        """Check that everything is there that was published, or that was available to a reader."""
        for key, saved in expected.items():
            if saved.may_be_superseded:  # by now
                continue
            if key[1] in seen.damaged and self.torn and not self.durable:
                continue
            if key not in found:
                raise Wrong(f"{key} was published, or seen as available, and is gone: {saved}")
            if found[key] is not saved:
                raise Wrong(f"{key} was {saved} when it was published or available, and is {found[key]} now")
        self._check_end(seen, found)

    def check_superseded(self, found: Mapping[Key, Saved], superseded: list[Saved]) -> None:
        """Check that nothing is visible that was superseded."""
        for saved in superseded:
            if found.get(saved.key) is saved and not self.torn:
                raise Wrong(f"{saved.key} was superseded, and is there: {saved}")

    def _look(self, trial: Trial) -> Seen:
        seen = Seen()
        trial.steps()
        with no_refresh(trial):
            seen.ended = trial.loaded_all_steps
            seen.session = newest_session(trial)
            for step in trial.steps(show_incomplete_steps=True):
                seen.steps[step] = trial.mode(step).name, trial.mode_step(step)
                if trial.has_passed_step(step) is StepState.AVAILABLE:
                    seen.available.append(step)
                for name in trial.tensor_names(step=step):
                    for worker, value in self._values(trial, name, step, seen):
                        seen.values[worker, step][name] = value
        return seen

    def _values(self, trial: Trial, name: str, step: int, seen: Seen) -> Iterator[tuple[str, Array]]:
        tensor = trial.tensor(name)
        for worker in self._or_damaged(lambda: tensor.workers(step), step, seen) or ():
            value = self._or_damaged(lambda worker=worker: tensor.value(step, worker=worker), step, seen)
            if value is not None:
                yield worker, value

    def _or_damaged(self, read: Callable[[], Any], step: int, seen: Seen) -> Any:
        try:
            return read()
        except (FileError, FileNotFoundError) as exc:
            if not self.torn or not isinstance(exc, TensorTrialError):
                raise
            seen.damaged.add(step)
            return None

    def _match(self, seen: Seen, key: Key, values: Mapping[str, Array]) -> Saved:
        """Return what was saved, of which a reader sees exactly this."""
        whole = key[1] not in seen.damaged
        for saved in self.saved.get(key, ()):
            if (values.keys() == saved.values.keys() if whole else values.keys() <= saved.values.keys()) and all(
                _equal(value, saved.values[name]) for name, value in values.items()
            ):
                if not saved.closed:
                    raise Wrong(f"{key} is visible, and was never closed: {_shown(values)}")
                return saved
        raise Wrong(f"{key} is {_shown(values)}, and was saved as {self.saved.get(key)}")

    def _check_end(self, seen: Seen, found: Mapping[Key, Saved]) -> None:
        """Check that a session that had ended, to a reader, adds nothing more."""
        if self.marked or self.torn:
            return
        if self._ended_session is not None:
            for key, saved in found.items():
                # A later job may join a session that has ended, if it cannot know that it is of an earlier job.
                was_there = saved.process <= self._newest_process and saved.session <= self._ended_session
                if key not in self._final and was_there:
                    raise Wrong(f"{key} came after the job had ended: {saved}")
        if seen.ended and (self._ended_session is None or self._ended_session < seen.session):
            self._final, self._ended_session = set(found), seen.session
            self._newest_process = max(self._world.scheduler.processes)

    def check_rows(self, trial: Trial, seen: Seen) -> None:
        """Check that SQL returns each row that the methods of a trial return, once."""
        if self.torn:
            return
        self._world.in_engine = True
        try:
            rows = trial.sql("select worker, global_step, name from tensors order by all").fetchall()
        finally:
            self._world.in_engine = False
        expected = sorted((worker, step, name) for (worker, step), values in seen.values.items() for name in values)
        if rows != expected:
            raise Wrong(f"SQL returns the rows {rows}, and not {expected}")

    def check_bytes(self, trial: Trial) -> None:
        """Check that a verification finds nothing damaged, unless power was lost."""
        report = trial.verify()
        if not report.is_whole and not self.torn:
            raise Wrong(f"a verification finds damage: {report}")

    def check_ends(self, seen: Seen) -> None:
        """Check that a worker that ended without a failure has left nothing behind."""
        if self.torn or self.marked:
            return
        for path in self._world.disk.names("end"):
            document = json.loads(self._world.disk.files[path].data)
            if document["failure"] is None:
                self._check_whole(seen, path, document["worker"], document.get("session"))

    def _check_whole(self, seen: Seen, path: str, worker: str, session: int | None) -> None:
        for saved in itertools.chain(*self.saved.values()):
            of_session = (saved.worker, saved.session) == (worker, session)
            is_due = of_session and saved.closed and saved.values and not saved.may_be_superseded
            if is_due and saved.key not in seen.values:
                raise Wrong(f"{saved.key} is missing, and {path} says that nothing failed")


def _equal(value: Array, saved: Array) -> bool:
    return value.dtype == saved.dtype and value.shape == saved.shape and value.tobytes() == saved.tobytes()


def _shown(values: Mapping[str, Array]) -> dict[str, Any]:
    return {name: value.ravel()[0] for name, value in values.items()}
