"""The states of the steps of a snapshot, and their reasons: complete, pending or lost."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from itertools import compress
from typing import Any, TypeVar
from urllib.parse import unquote

import numpy as np

from ..errors import ConfigurationError, CorruptFile, FileError, NoMoreData, StepNotYetAvailable, StepUnavailable
from ..format.index_types import SavedTensor
from ..format.schema import COLLECTIONS, INDEX, FlushRange, flush_range_of, index_folder, worker_of
from ..mode import GLOBAL, ModeKeys, checked_step
from ..snapshot.columns import Lookup
from ..snapshot.saved_steps import MODES, NEVER, Columns, SavedSteps, StepInfo
from ..snapshot.snapshot import Snapshot
from ..snapshot.workers import natural
from ..storage.open import Storage

_T = TypeVar("_T")

_INCOMPLETE_STEP_WINDOW = "SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW"
_MOST_CHECKED = 200
"""The number of steps on each side that are checked for a hint: an error must not cost a scan of a long run."""
_SHOWN_WORKERS = 3


class StepState(Enum):
    """The state of a step: complete, still to come, or never to come."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


@dataclass(frozen=True)
class LateWorker:
    """A worker of a running job that the newest saved steps wait for. A running worker is late by a flush or two.

    Attributes:
        worker: Its name.
        last_step: The last global step that it saved; None if it has saved none.
        saved_at: When it saved that, in UTC and by its own clock; None if it has saved none.
        newest_step: The last global step that any worker saved.
    """

    worker: str
    last_step: int | None
    saved_at: datetime | None
    newest_step: int

    @property
    def behind_seconds(self) -> float | None:
        """Seconds since it saved its last step; None if it has saved none."""
        return None if self.saved_at is None else (datetime.now(UTC) - self.saved_at).total_seconds()

    def __str__(self) -> str:
        if self.last_step is None or self.saved_at is None:
            return f"{self.worker} has saved no step, and another worker has saved step {self.newest_step}"
        return (
            f"{self.worker} has saved nothing since step {self.last_step}, at {self.saved_at:%Y-%m-%d %H:%M:%S} UTC, "
            f"and another worker has saved step {self.newest_step}"
        )


class StepStates:
    """The states of the steps of a snapshot. Each is computed once."""

    def __init__(self, snapshot: Snapshot, storage: Storage) -> None:
        self.snapshot, self._storage = snapshot, storage
        self.saved, self.workers = snapshot.steps, snapshot.workers
        window = os.environ.get(_INCOMPLETE_STEP_WINDOW, "").strip() or "1000"
        if not window.isdecimal():
            raise ConfigurationError(f"{_INCOMPLETE_STEP_WINDOW} must be a whole number of steps, got {window!r}")
        self._window = int(window)
        self._known: dict[tuple[Any, ...], Any] = {}
        self.rows: dict[tuple[Any, ...], SavedTensor] = {}
        """A cache of the rows of a tensor at a step."""

    def _derived(self, key: tuple[Any, ...], make: Callable[[], _T]) -> _T:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def of(self, step: int, mode: ModeKeys) -> StepState:
        """Return the state of a step of a mode."""
        state = step_state(step, *self.all(mode), self.workers.job_ended)
        if state is StepState.UNAVAILABLE and self._pending(step, mode) is not None:
            return StepState.NOT_YET_AVAILABLE
        return state

    def all(self, mode: ModeKeys) -> tuple[list[int], list[bool]]:
        """Return all steps of a mode, ascending, and a mask of the complete ones. Must not be changed."""
        mode = ModeKeys.parse(mode)
        return self._derived(("states", mode), lambda: complete_steps(self.saved, mode, self._session()))

    def _session(self) -> Session:
        workers = self.workers
        earlier = frozenset(info.worker for info in workers.infos if info.session < workers.newest_session)
        return Session(
            workers.num_workers,
            frozenset(workers.ended),
            earlier,
            workers.session_start,
            workers.job_ended,
            self._window,
        )

    def complete(self, mode: ModeKeys) -> list[int]:
        """Return the complete steps of a mode, ascending. Must not be changed."""
        return self._derived(("complete_steps", ModeKeys.parse(mode)), lambda: list(compress(*self.all(mode))))

    def info(self, step: int, mode: ModeKeys, worker: str | None = None) -> StepInfo | None:
        """Return a step of a mode as one worker saved it, or the first one that has it; None if none has."""
        infos = self.saved.infos(step, mode)
        if len(infos) > 1:
            places = self.saved.places(step, mode)
            of_worker = places.get(worker or "") or places[min(places, key=natural)]
            infos = [info for info in infos if info[:3] == of_worker]
        return infos[0] if infos else None

    def known_info(self, step: int, mode: ModeKeys = GLOBAL) -> StepInfo:
        """Return a step of a mode as the first worker saved it. Raise StepUnavailable or StepNotYetAvailable."""
        if (info := self.info(step, mode)) is None:
            raise self.missing(step, mode)
        return info

    def global_steps(self, step: int, mode: ModeKeys) -> list[int]:
        """Return the global steps of a step of a mode, ascending. There are several if workers are not in step."""
        if mode is GLOBAL:
            return [checked_step(step)]
        return list(dict.fromkeys(info.global_step for info in self.saved.infos(step, mode)))

    def late_workers(self) -> list[LateWorker]:
        """Return the workers that the newest saved steps wait for, in natural order."""
        if self.workers.job_ended:
            return []
        session = self._session()
        progress = {
            worker: found
            for worker, found in self.saved.progress().items()
            if worker not in session.not_begun or found[0] < session.first_step  # the other steps will be superseded
        }
        newest = max((last for last, _ in progress.values()), default=None)
        if newest is None:
            return []
        names = [*(info.worker for info in self.workers.writing), *self.workers.not_begun]
        late = [LateWorker(name, *_last_saved(progress.get(name)), newest) for name in sorted(names, key=natural)]
        return [each for each in late if each.last_step is None or each.last_step < newest]

    # Why a step is missing.

    def missing(self, step: int, mode: ModeKeys) -> StepUnavailable | StepNotYetAvailable | NoMoreData:
        """Return the error for a step that is not available."""
        if self.of(step, mode) is StepState.NOT_YET_AVAILABLE:
            return self.not_yet(step, mode)
        steps, _ = self.all(mode)
        if self.workers.job_ended and (not steps or step > steps[-1]):
            return NoMoreData(step, mode, steps[-1] if steps else None, self.reason_of_loss(step, mode))
        return StepUnavailable(step, mode, self.reason_of_loss(step, mode))

    def not_yet(self, step: int, mode: ModeKeys) -> StepNotYetAvailable:
        """Return the error for a step that may still be saved."""
        error = self._pending(step, mode)
        if error is not None:
            return StepNotYetAvailable(step, mode, f"a file that cannot be read now may hold it ({error})")
        return StepNotYetAvailable(step, mode, described(self.late_workers(), self._storage.url))

    def reason_of_loss(self, step: int, mode: ModeKeys) -> str:
        """Return a clause that names the damaged or missing file which may have held a step; empty if there is none."""
        error = self.lost_rows().holding(step, ModeKeys.parse(mode))
        return "" if error is None else f"a file that is lost or damaged may have held it ({error})"

    def hint(self, name: str, step: int, mode: ModeKeys) -> str:
        """Return a clause about other modes that have the step of a tensor, and near steps; empty if there are none."""
        saved, sets, steps = self.saved, set(self.saved.sets_of(name)), self.all(mode)[0]

        def has(step: int, mode: ModeKeys) -> bool:
            return not sets.isdisjoint(saved.sets_at(step, mode))

        others = [each.name for each in saved.modes() if each is not mode and has(step, each)]
        at = bisect_left(steps, step)
        before = (each for each in reversed(steps[max(0, at - _MOST_CHECKED) : at]) if has(each, mode))
        after = (each for each in steps[at : at + _MOST_CHECKED] if has(each, mode) and each != step)
        near = [str(each) for each in (next(before, None), next(after, None)) if each is not None]
        clauses = []
        if others:
            has_it = "modes " + " and ".join(others) + " have" if len(others) > 1 else f"mode {others[0]} has"
            clauses.append(f"{has_it} a step {step} of it: choose mode {others[0]}")
        if near:
            which = "nearest steps are" if len(near) > 1 else "nearest step is"
            clauses.append(f"its {which} {' and '.join(near)}" + (f" of mode {mode.name}" if others else ""))
        return "; ".join(clauses)

    def lost_rows(self) -> LostRows:
        """Return the rows that the damaged files may have held."""
        return self._derived(("lost",), lambda: LostRows(self._with_rows(self.snapshot.damaged), self.saved))

    def _with_rows(self, damaged: Mapping[str, FileError]) -> dict[str, FileError]:
        """Return the damaged files, without claims of workers that published nothing, such as stray copies."""
        return {
            path: error
            for path, error in damaged.items()
            if not path.startswith(f"{COLLECTIONS}/") or self._storage.list(index_folder(worker_of(path)))
        }

    def _pending(self, step: int, mode: ModeKeys) -> FileError | None:
        """Return the error of a file that may hold a step of a mode, and may be read yet; None if there is none."""
        pending = self.snapshot.pending
        if not pending:
            return None
        rows = self._derived(("pending", *pending), lambda: LostRows(pending, self.saved))
        return rows.holding(step, ModeKeys.parse(mode))


def described(late: Sequence[LateWorker], url: str) -> str:
    """Return a sentence about the late workers of the run at `url` with advice; '' if there are none."""
    if not late:
        return ""
    more = f"; and {len(late) - _SHOWN_WORKERS} more workers" if len(late) > _SHOWN_WORKERS else ""
    worker = late[0].worker
    names = "; ".join(map(str, late[:_SHOWN_WORKERS]))
    return f"{names}{more}. If {worker} was killed, run `tensortrial mark-ended {url} --worker {worker}`"


def _last_saved(progress: tuple[int, int] | None) -> tuple[int | None, datetime | None]:
    """Return the last step of a worker and its time in UTC; None for both if it has saved none."""
    step, saved_at_us = progress or (None, None)
    return step, None if saved_at_us is None else datetime.fromtimestamp(saved_at_us / 1e6, UTC)


def step_state(step: int, steps: Sequence[int], complete: Sequence[bool], job_ended: bool) -> StepState:
    """Return the state of `step`, given all saved `steps`, ascending, and a mask of the complete ones.

    Let n be the least existing step >= `step`. Without n, the step may come until the job ends. If n is a later step,
    `step` was skipped, which is certain once a complete step >= n exists. If n is `step`, it is complete or not yet.
    """
    position = bisect_left(steps, checked_step(step))
    if position == len(steps):
        return StepState.UNAVAILABLE if job_ended else StepState.NOT_YET_AVAILABLE
    if steps[position] == step:
        return StepState.AVAILABLE if complete[position] else StepState.NOT_YET_AVAILABLE
    # A step is complete once a later one is: if any step from n on is complete, n is.
    return StepState.UNAVAILABLE if complete[position] else StepState.NOT_YET_AVAILABLE


@dataclass(frozen=True)
class Session:
    """The newest session of a run, by the claims and end marks of its workers."""

    num_workers: int
    ended: frozenset[str]
    """The workers of the run that have ended."""
    not_begun: frozenset[str]
    """The workers of earlier sessions that have saved nothing in it."""
    first_step: int
    """The first global step of the session. No earlier step is still being written."""
    job_ended: bool
    window: int
    """The most incomplete steps that are waited for. Of more steps, the older half counts as complete."""


def complete_steps(saved: SavedSteps, mode: ModeKeys, session: Session) -> tuple[list[int], list[bool]]:
    """Return the steps of a mode, ascending, and a mask of the complete ones, which come first.

    Each worker writes its steps in order. A global step is complete once all workers have written or passed it; a step
    of a mode once all workers that have saved steps of the mode have.
    """
    rows, lookup = saved.in_mode(mode)
    steps = lookup.distinct
    if session.job_ended or not steps:
        return steps, [True] * len(steps)
    reached, reached_of_mode, reached_by_others = _reached(saved, mode, session)
    first = lookup.least(rows.global_step)
    before = first < session.first_step
    complete = before | (first <= reached)
    if mode is not GLOBAL:
        in_mode = (np.array(steps) <= reached_of_mode) & (first <= reached_by_others)
        complete = np.where(first < saved.first_uneven_step, complete, before | in_mode)
    begun = np.array(saved.by_global_step.distinct)
    late = begun[(begun >= session.first_step) & (begun > reached)]
    if len(late) > max(session.window, 1):
        complete |= first <= late[len(late) // 2 - 1]
    # A step is complete once a later one is.
    number = len(steps) - int(complete[::-1].argmax()) if complete.any() else 0
    return steps, [True] * number + [False] * (len(steps) - number)


def _reached(saved: SavedSteps, mode: ModeKeys, session: Session) -> tuple[int, ...]:
    """Return the global step that all pending workers have reached; -1 if one of these has saved nothing yet.

    Also return the step of the mode of the workers with steps of this mode, and the global step of the others.
    """
    pending = session.num_workers - len(session.ended)
    if pending <= 0:
        return NEVER, NEVER, NEVER
    # A worker that has ended will not write the steps that it lacks. A worker that has not begun may still go back.
    done = session.ended | session.not_begun
    writes = np.array([worker not in done for worker in saved.workers], bool)
    rows = saved.columns
    rows = rows.of((rows.global_step >= session.first_step) & writes[rows.worker])
    workers = Lookup(rows.worker)
    last = workers.greatest(rows.global_step)
    if len(last) < pending:
        return -1, -1, -1
    of_mode = workers.greatest(np.where(rows.mode == MODES.index(mode), rows.mode_step, -1))
    furthest = np.argsort(-last, kind="stable")[:pending]
    last, of_mode = last[furthest], of_mode[furthest]
    has_mode = of_mode >= 0
    parts = last, of_mode[has_mode], last[~has_mode]
    return tuple(int(each.min(initial=NEVER)) for each in parts)


@dataclass(frozen=True, slots=True)
class _Lost:
    """The global steps that a damaged file may hold."""

    worker: str
    error: FileError
    after: int
    before: float
    known: tuple[tuple[int, int], ...] = ()
    """The first and the last step of each readable file of the worker. These steps are not lost."""

    def may_hold_between(self, after: float, before: float) -> bool:
        """Return whether the file may hold a step between `after` and `before`."""
        step = max(self.after, after) + 1
        for first, last in sorted(self.known):
            if first > step:
                break
            step = max(step, last + 1)
        return step < min(self.before, before)


class LostRows:
    """The rows that the damaged files of a run may have held."""

    def __init__(self, damaged: Mapping[str, FileError], saved: SavedSteps) -> None:
        """`damaged` files, by path, and the steps that were `saved` in the others."""
        self._saved, files = saved, saved.spans
        self._lost = [lost for path, error in damaged.items() if (lost := _lost_of(path, error, files))]

    def check(self, rows: Iterable[SavedTensor], mode: ModeKeys) -> None:
        """Raise CorruptFile, naming the file, if a damaged file may hold a row that comes before one of `rows`.

        That is a row of the same tensor and step of a mode, but of an earlier worker.
        """
        for row in rows if self._lost else ():
            for lost in self._lost:
                if natural(lost.worker) < natural(row.worker) and self._may_hold(lost, _step_of(row, mode), mode):
                    raise CorruptFile(
                        lost.error.path,
                        f"this damaged file may hold {row.name!r} of {lost.worker} at {_named(row, mode)}; pass "
                        f"worker={row.worker!r} to read what that worker saved ({lost.error})",
                    ) from lost.error

    def check_worker(self, worker: str, row: SavedTensor, mode: ModeKeys) -> None:
        """Raise CorruptFile if a damaged file may hold the row of `worker` for the tensor and step of `row`."""
        for lost in self._lost:
            if lost.worker == worker and self._may_hold(lost, _step_of(row, mode), mode):
                raise CorruptFile(
                    lost.error.path,
                    f"this file is damaged or missing, and may have held {row.name!r} of {worker} at "
                    f"{_named(row, mode)} ({lost.error})",
                ) from lost.error

    def holding(self, step: int, mode: ModeKeys) -> FileError | None:
        """Return the error of a file that may hold a step of a mode; None if none may."""
        return next((lost.error for lost in self._lost if self._may_hold(lost, step, mode)), None)

    def _may_hold(self, lost: _Lost, step: int, mode: ModeKeys) -> bool:
        """Return whether a file may hold a step of a mode: at its global step or, if that is unknown, between others.

        Those are of the steps before and after it, of all workers or, if these are not in step, of the file's worker.
        """
        if mode is GLOBAL:
            return lost.may_hold_between(step - 1, step + 1)
        found = self._of_worker(self._saved.columns.of(self._saved.rows_of(step, mode)), lost.worker).global_step
        if len(found):
            return lost.may_hold_between(int(found.min()) - 1, int(found.max()) + 1)
        rows = self._of_worker(self._saved.in_mode(mode)[0], lost.worker)
        before, after = (rows.global_step[side] for side in (rows.mode_step < step, rows.mode_step > step))
        return lost.may_hold_between(int(before.max(initial=-1)), float("inf") if not len(after) else int(after.min()))

    def _of_worker(self, rows: Columns, worker: str) -> Columns:
        if self._saved.first_uneven_step == NEVER:
            return rows
        return rows.of(np.array([each == worker for each in self._saved.workers], bool)[rows.worker])


def _step_of(row: SavedTensor, mode: ModeKeys) -> int:
    return row.global_step if mode is GLOBAL else row.mode_step


def _named(row: SavedTensor, mode: ModeKeys) -> str:
    return f"step {row.global_step}" if mode is GLOBAL else f"step {row.mode_step} of mode {mode.name}"


def _lost_of(path: str, error: FileError, files: Sequence[tuple[str, int, int]]) -> _Lost | None:
    """Return the steps between the worker's flushes before and after the damaged ones, or all if its claim is damaged.

    A worker's rows are read only if its claim is readable.
    """
    if path.startswith(f"{COLLECTIONS}/"):
        return _Lost(worker_of(path), error, -1, float("inf"))
    parts = path.split("/")
    flushes = flush_range_of(path)
    if parts[0] != INDEX or flushes is None or not parts[1].startswith("worker="):
        return None
    own = [file for file in files if file[0].startswith(f"{INDEX}/{parts[1]}/")]
    others = _in_order([(of, first, last) for other, first, last in own if (of := flush_range_of(other))])
    return _Lost(
        unquote(parts[1].removeprefix("worker=")),
        error,
        max((last for of, _, last in others if of.last < flushes.first), default=-1),
        min((first for of, first, _ in others if of.first > flushes.last), default=float("inf")),
        tuple((first, last) for _, first, last in others),
    )


def _in_order(files: Sequence[tuple[FlushRange, int, int]]) -> list[tuple[FlushRange, int, int]]:
    """Return the files in the order of their flushes, without files that begin before an earlier file ends.

    Those hold values for past steps, and do not show which steps another file holds.
    """
    found = []
    reached = -1
    for flushes, first, last in sorted(files, key=lambda file: file[0].first):
        if first > reached:
            found.append((flushes, first, last))
        reached = max(reached, last)
    return found
