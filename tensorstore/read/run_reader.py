"""A run as it is read: which steps are complete, where the rows and values of tensors are, and what is new."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from .. import forking
from ..dtypes import Array
from ..engines.base import Engine
from ..errors import (
    FileError,
    InvalidWorker,
    MissingChunk,
    NoMoreData,
    RunClosed,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailableForStep,
)
from ..format.index_types import SavedTensor
from ..format.schema import COLLECTIONS, index_folder, worker_of
from ..mode import ModeKeys
from ..storage.open import Storage
from .catalogue import Catalogue, collection_row
from .late_worker import LateWorker, described
from .lost_rows import LostRows
from .step_state import SettledSteps, StepState, step_state
from .values import read_values
from .views import StepRange
from .workers import Workers, natural

GLOBAL = ModeKeys.GLOBAL
_ENDED_GLANCE_SECONDS = 1.0
_LOCAL_CLAIMS_SECONDS = 1.0
_REMOTE_CLAIMS_SECONDS = 10.0
_INCOMPLETE_STEP_WINDOW = "SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW"


class RunReader:
    """What a trial, its tensors and the rules read a run through.

    `look` comes before a question, and looks for new data unless that is switched off; the other methods answer from
    what was seen last, except those that say so.
    """

    def __init__(self, storage: Storage, range_steps: StepRange | None = None, engine: Engine | None = None) -> None:
        self.storage = storage
        self.range_steps, self.engine = range_steps, engine
        self._window = int(os.environ.get(_INCOMPLETE_STEP_WINDOW, 1000))
        self.is_refreshing = True
        """Whether `look` looks for new data."""
        self._claims_seconds = _LOCAL_CLAIMS_SECONDS if storage.is_local else _REMOTE_CLAIMS_SECONDS
        self._closed = False
        self._lock = threading.RLock()
        self._inherited = False
        self._begin()
        forking.register(self)

    def _begin(self) -> None:
        self._settled: dict[ModeKeys, SettledSteps] = {}
        self._ended_at: float | None = None
        self._ended_workers: list[str] = []
        self._claims_read_at = time.monotonic()
        self._workers = Workers(self.storage)
        self._catalogue = Catalogue(self.storage, self.range_steps, self.engine)
        self._refresh()
        # Last: until then other threads of a forked child wait.
        self._inherited = False

    def after_fork(self) -> None:
        """Open the run again when it is next read: the catalogue of a forked process has lost its threads, and another
        thread may have been in the middle of a change."""
        self._lock = threading.RLock()
        self._inherited = True

    @property
    def workers(self) -> Workers:
        """What the workers say of themselves."""
        self._make_own()
        return self._workers

    @property
    def catalogue(self) -> Catalogue:
        """What is in the run."""
        self._make_own()
        return self._catalogue

    def _make_own(self) -> None:
        if not self._inherited:
            return
        with self._lock:
            if self._closed:
                raise RunClosed
            if self._inherited:
                self._begin()

    def close(self) -> None:
        """Release the memory."""
        self._closed = True
        if not self._inherited:
            self._catalogue.close()

    # What is new.

    def look(self) -> None:
        # An ended job changes only if it is resumed: a glance now and then is enough, and spares the listings.
        if self.is_refreshing and not (self._ended_at and time.monotonic() - self._ended_at < _ENDED_GLANCE_SECONDS):
            self.refresh()

    def refresh(self, claims: bool = False) -> None:
        """Look who writes and what is new. A claim changes when its worker resumes the run after a crash, or saves
        other collections; nothing tells of it, so claims are read again now and then, and with `claims` in any case."""
        with self._lock:
            self._make_own()
            self._refresh(claims)

    def _refresh(self, claims: bool = False) -> None:
        workers, catalogue = self._workers, self._catalogue
        now = time.monotonic()
        first = catalogue.version == 0
        changed = workers.refresh()
        # Who had ended before the index is listed can have added nothing since.
        ended = workers.job_ended
        grown = catalogue.refresh([info.worker for info in workers.infos])
        if not first and (grown or claims or now - self._claims_read_at > self._claims_seconds):
            self._claims_read_at = now
            changed = workers.reread() or changed
        self._ended_at = now if ended and workers.job_ended else None
        if changed and not grown:
            catalogue.changed()
        if changed or first:
            self._set_collections()
            self._set_ended()

    def _set_collections(self) -> None:
        self._catalogue.set_collections(
            [
                collection_row(info.worker, info.include_collections, dict(document))
                for info in self._workers.infos
                for document in info.collections
            ]
        )

    def _set_ended(self) -> None:
        ended = self._workers.ended
        if ended != self._ended_workers:
            self._ended_workers = ended
            self._catalogue.set_ended(ended)

    @contextmanager
    def refreshing(self, wanted: bool) -> Iterator[None]:
        """Whether questions look for new data, inside the block; what was before is restored after it."""
        before, self.is_refreshing = self.is_refreshing, wanted
        try:
            yield
        finally:
            self.is_refreshing = before

    # Steps.

    def states(self, mode: ModeKeys) -> tuple[list[int], list[bool]]:
        """All steps of a mode, ascending, and which of them are complete."""
        mode = ModeKeys.parse(mode)

        def ask() -> tuple[list[int], list[bool]]:
            settled = self._settled_steps(mode)
            rows = self._states_after(settled.last_step, mode)
            if not settled.follow(rows):
                settled = self._settled[mode] = SettledSteps(settled.session)
                rows = self._states_after(-1, mode)
            steps = settled.steps + [row[0] for row in rows]
            complete = [True] * len(settled.steps) + [row[1] for row in rows]
            settled.add(rows)
            ((settled.rows,),) = self.catalogue.fetch("steps_until", step=settled.last_step)
            return steps, complete

        return self.catalogue.derived(("states", mode), ask)

    def _states_after(self, global_step: int, mode: ModeKeys) -> list[tuple[Any, ...]]:
        return self.catalogue.fetch(
            "step_states",
            mode=mode.name,
            num_workers=self.workers.num_workers,
            num_ended=len(self._ended_workers),
            session_start=self.workers.session_start,
            job_ended=self.workers.job_ended,
            window=self._window,
            after=global_step,
        )

    def complete_steps(self, mode: ModeKeys) -> list[int]:
        """The complete steps of a mode, ascending. Not to be changed."""

        def ask() -> list[int]:
            steps, complete = self.states(mode)
            return steps if all(complete) else [step for step, whole in zip(steps, complete, strict=True) if whole]

        return self.catalogue.derived(("complete_steps", ModeKeys.parse(mode)), ask)

    def _settled_steps(self, mode: ModeKeys) -> SettledSteps:
        """The steps of a mode of which nothing can change any more, unless what was held for certain no longer is."""
        session = self.workers.num_workers, self.workers.session_start
        known = self._settled.get(mode)
        if known is not None and known.session == session:
            ((count,),) = self.catalogue.fetch("steps_until", step=known.last_step)
            if count == known.rows:
                return known
        known = self._settled[mode] = SettledSteps(session)
        return known

    def state(self, step: int, mode: ModeKeys) -> StepState:
        return step_state(step, *self.states(mode), self.workers.job_ended)

    def state_now(self, step: int, mode: ModeKeys) -> StepState:
        # Waiting without looking would be for ever.
        self.refresh()
        return self.state(step, mode)

    def no_step(self, step: int, mode: ModeKeys) -> StepUnavailable | StepNotYetAvailable | NoMoreData:
        if self.state(step, mode) is StepState.NOT_YET_AVAILABLE:
            return StepNotYetAvailable(step, mode, described(self.late_workers(), self.storage.url))
        steps, _ = self.states(mode)
        if self.workers.job_ended and (not steps or step > steps[-1]):
            return NoMoreData(step, mode, steps[-1] if steps else None)
        return StepUnavailable(step, mode)

    def global_steps(self, mode: ModeKeys) -> dict[int, int]:
        """The global step of each step of a mode."""

        def ask() -> dict[int, int]:
            rows = self.catalogue.fetch("step_modes")
            return {step: global_step for name, step, global_step in rows if name == mode.name}

        return self.catalogue.derived(("global_steps", mode), ask)

    def mode_of(self, global_step: int) -> tuple[ModeKeys, int]:
        def ask() -> dict[int, tuple[ModeKeys, int]]:
            return {step: (ModeKeys[name], int(in_mode)) for name, in_mode, step in self.catalogue.fetch("step_modes")}

        self.look()
        modes = self.catalogue.derived(("modes",), ask)
        if global_step not in modes:
            raise self.no_step(global_step, GLOBAL)
        return modes[global_step]

    def waits_for_itself(self, step: int, mode: ModeKeys) -> bool:
        """Return whether the calling thread writes this run, and has not come to a step. Where it has, the step may
        still wait for other workers."""
        steps, _ = self.states(mode)
        return (not steps or step > steps[-1]) and self.storage.is_written_here()

    def late_workers(self) -> list[LateWorker]:
        """The workers that the newest saved steps wait for, in natural order."""
        if self.workers.job_ended:
            return []
        progress = {worker: (last, at) for worker, last, at in self.catalogue.fetch("worker_progress")}
        newest = max((last for last, _ in progress.values()), default=None)
        if newest is None:
            return []
        names = [*(info.worker for info in self.workers.writing), *self.workers.not_begun]
        late = [LateWorker(name, *progress.get(name, (None, None)), newest) for name in sorted(names, key=natural)]
        return [each for each in late if each.last_step is None or each.last_step < newest]

    # Names.

    def names_at(self, step: int, mode: ModeKeys) -> list[tuple[Any, ...]]:
        """The names at a step with their collections. Most steps hold the same set of names: it is asked for once."""

        def ask() -> dict[int, list[int]]:
            found: dict[int, list[int]] = {}
            for each, name_set in self.catalogue.fetch("step_name_sets", mode=mode.name):
                found.setdefault(each, []).append(name_set)
            return found

        sets = self.catalogue.derived(("name_sets", mode), ask).get(step, [])
        rows = [row for name_set in sets for row in self.catalogue.fetch("names_of_set", name_set=name_set)]
        return rows if len(sets) < 2 else sorted(rows)

    def all_names(self) -> dict[str, None]:
        def ask() -> dict[str, None]:
            return dict.fromkeys(name for name, _ in self.catalogue.fetch("tensor_names", mode=GLOBAL.name))

        return self.catalogue.derived(("names",), ask)

    def nearest(self, tname: str) -> str:
        near = get_close_matches(tname, self.all_names(), n=3)
        return f"did you mean {' or '.join(map(repr, near))}?" if near else ""

    # Rows and values.

    def tensor_steps(self, name: str, mode: ModeKeys, show_incomplete_steps: bool) -> list[int]:
        self.look()
        mode = ModeKeys.parse(mode)
        saved = self.catalogue.fetch("tensor_steps", name=name, mode=mode.name)
        steps, complete = self.states(mode)
        # The complete steps are the first ones.
        last = steps[whole - 1] if (whole := sum(complete)) else -1
        return [step for (step,) in saved if show_incomplete_steps or step <= last]

    def rows_at(self, name: str, step: int, mode: ModeKeys, statistics: bool = False) -> list[SavedTensor]:
        """What each worker saved of a tensor at a step, in natural order of the workers. Raises if there is nothing."""
        self.look()
        mode = ModeKeys.parse(mode)
        global_step = step if mode is GLOBAL else self.global_steps(mode).get(step)
        rows = [] if global_step is None else self.catalogue.rows(name, global_step, statistics)
        if not rows:
            raise self._not_at_step(name, step, mode)
        return sorted(rows, key=_by_worker) if len(rows) > 1 else rows

    def row(self, name: str, step: int, mode: ModeKeys, worker: str | None, statistics: bool = False) -> SavedTensor:
        rows = self.rows_at(name, step, mode, statistics)
        if worker is None:
            self._lost_rows().check(rows[:1])
            return rows[0]
        for row in rows:
            if row.worker == worker:
                return row
        raise InvalidWorker(worker, [row.worker for row in rows])

    def _not_at_step(self, name: str, step: int, mode: ModeKeys) -> Exception:
        state = self.state(step, mode)
        if state is StepState.NOT_YET_AVAILABLE:
            return StepNotYetAvailable(step, mode, described(self.late_workers(), self.storage.url))
        if state is StepState.UNAVAILABLE:
            return StepUnavailable(step, mode)
        return TensorUnavailableForStep(name, step, mode)

    def rows_of(
        self, names: Sequence[str], mode: ModeKeys, worker: str | None, steps: Iterable[int] | None = None
    ) -> dict[str, dict[int, SavedTensor]]:
        """What was saved of some tensors, by name and step; of one worker, or at each step of the first that has it."""
        mode = ModeKeys.parse(mode)
        wanted = None if steps is None else set(steps)
        rows = self._all_rows(names, mode, wanted)
        if worker is not None:
            known = {row.worker for row in rows}
            if worker not in known:
                raise InvalidWorker(worker, sorted(known, key=natural))
            rows = [row for row in rows if row.worker == worker]
        if mode is not GLOBAL:
            rows = [row for row in rows if row.mode == mode.name]
        if len({row.worker for row in rows}) > 1:
            rows = sorted(rows, key=_by_worker)
        found: dict[str, dict[int, SavedTensor]] = {name: {} for name in names}
        for row in rows:
            step = row.global_step if mode is GLOBAL else row.mode_step
            if wanted is None or step in wanted:
                found[row.name].setdefault(step, row)
        if worker is None:
            self._lost_rows().check(row for by_step in found.values() for row in by_step.values())
        return {name: dict(sorted(by_step.items())) for name, by_step in found.items()}

    def _lost_rows(self) -> LostRows:
        damaged = {**self.workers.damaged, **self.catalogue.damaged}
        return self.catalogue.derived(
            ("lost", *damaged),
            lambda: LostRows(self._with_rows(damaged), self.catalogue.fetch("spans_of_files") if damaged else ()),
        )

    def _with_rows(self, damaged: Mapping[str, FileError]) -> dict[str, FileError]:
        """Return the damaged files without the claims of workers that published nothing, such as stray copies."""
        return {
            path: error
            for path, error in damaged.items()
            if not path.startswith(f"{COLLECTIONS}/") or self.storage.list(index_folder(worker_of(path)))
        }

    def _all_rows(self, names: Sequence[str], mode: ModeKeys, wanted: set[int] | None) -> list[SavedTensor]:
        if wanted is None or len(wanted) >= len(names):
            return self.catalogue.rows_of_tensors(names) if names else []
        # A few steps of many tensors: step by step.
        global_steps = wanted if mode is GLOBAL else {self.global_steps(mode).get(step, -1) for step in wanted}
        return [row for step in sorted(global_steps) for name in names for row in self.catalogue.rows(name, step)]

    def rows_at_step(self, global_step: int) -> dict[str, list[SavedTensor]]:
        return self.catalogue.rows_of_step(global_step)

    def saved_row(self, name: str, global_step: int, worker: str) -> SavedTensor | None:
        rows = self.catalogue.rows(name, global_step, statistics=True)
        return next((row for row in rows if row.worker == worker), None)

    # For who follows a run.

    def steps_since(self, file_id: int) -> list[tuple[Any, ...]]:
        return self.catalogue.fetch("steps_since", after=file_id)

    def name_sets_since(self, name_set: int) -> list[tuple[Any, ...]]:
        return self.catalogue.fetch("name_sets_since", after=name_set)

    @property
    def version(self) -> int:
        return self.catalogue.version

    def read(self, rows: Sequence[SavedTensor]) -> list[Array]:
        while True:
            try:
                return read_values(self.storage, rows)
            except MissingChunk:
                # Compacted away since the rows were read, or really missing.
                now = self.catalogue.rows_now(rows)
                if [row[:14] for row in now] == [row[:14] for row in rows]:
                    raise
                rows = now


def _by_worker(row: SavedTensor) -> list[tuple[int, int | str]]:
    return natural(row.worker)
