"""The states of the steps of a snapshot, and their reasons: complete, awaited or lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from ...errors import FileError, NoMoreData, StepNotYetAvailable, StepUnavailable
from ...format.index_types import SavedTensor
from ...format.schema import COLLECTIONS, index_folder, worker_of
from ...mode import ModeKeys
from ...snapshot.saved_steps import StepInfo
from ...snapshot.snapshot import Snapshot
from ...snapshot.workers import natural
from ...storage.open import Storage
from .late_worker import LateWorker, described
from .lost_rows import LostRows
from .step_state import Session, StepState, complete_steps, step_state

_T = TypeVar("_T")

GLOBAL = ModeKeys.GLOBAL
_INCOMPLETE_STEP_WINDOW = "SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW"


class StepStates:
    """The states of the steps of a snapshot. Each is computed once."""

    def __init__(self, snapshot: Snapshot, storage: Storage) -> None:
        self.snapshot, self._storage = snapshot, storage
        self.saved, self.workers = snapshot.steps, snapshot.workers
        self._window = int(os.environ.get(_INCOMPLETE_STEP_WINDOW, 1000))
        self._known: dict[tuple[Any, ...], Any] = {}
        self.rows: dict[tuple[Any, ...], SavedTensor] = {}
        """Rows that were found for a tensor at a step, so that the same question is answered at once."""

    def _derived(self, key: tuple[Any, ...], make: Callable[[], _T]) -> _T:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]  # type: ignore[no-any-return]

    @property
    def job_ended(self) -> bool:
        """True if the job has ended, so that nothing more will come: no file can be read that could not."""
        return self.workers.job_ended and not self.snapshot.awaited

    def of(self, step: int, mode: ModeKeys) -> StepState:
        """Return the state of a step of a mode."""
        state = step_state(step, *self.all(mode), self.workers.job_ended)
        if state is StepState.UNAVAILABLE and self._awaited(step, mode) is not None:
            return StepState.NOT_YET_AVAILABLE
        return state

    def all(self, mode: ModeKeys) -> tuple[list[int], list[bool]]:
        """Return all steps of a mode, ascending, and which of them are complete: the first ones. Not to be changed."""
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
        """Return the complete steps of a mode, ascending. Not to be changed."""

        def select() -> list[int]:
            steps, complete = self.all(mode)
            return steps if all(complete) else [step for step, whole in zip(steps, complete, strict=True) if whole]

        return self._derived(("complete_steps", ModeKeys.parse(mode)), select)

    def info(self, step: int, mode: ModeKeys, worker: str | None = None) -> StepInfo | None:
        """Return a saved step of a mode: what it was for one worker, or for the first that has it; None without one."""
        infos = self.saved.infos(step, mode)
        if len(infos) > 1:
            places = self.saved.places(step, mode)
            of_worker = places.get(worker or "") or places[min(places, key=natural)]
            infos = [info for info in infos if info[:3] == of_worker]
        return infos[0] if infos else None

    def known_info(self, step: int, mode: ModeKeys = GLOBAL) -> StepInfo:
        """Return a step of a mode as the first worker saved it. Raises StepUnavailable or StepNotYetAvailable."""
        if (info := self.info(step, mode)) is None:
            raise self.missing(step, mode)
        return info

    def global_steps(self, step: int, mode: ModeKeys) -> list[int]:
        """Return the global steps of a step of a mode, ascending: several where workers are not in step."""
        return (
            [step] if mode is GLOBAL else list(dict.fromkeys(info.global_step for info in self.saved.infos(step, mode)))
        )

    def late_workers(self) -> list[LateWorker]:
        """Return the workers that the newest saved steps wait for, in natural order."""
        if self.workers.job_ended:
            return []
        session = self._session()
        progress = {
            worker: found
            for worker, found in self.saved.progress().items()
            if worker not in session.not_begun or found[0] < session.first_step  # others it will set aside
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
        error = self._awaited(step, mode)
        if error is not None:
            return StepNotYetAvailable(step, mode, f"a file that cannot be read now may hold it ({error})")
        return StepNotYetAvailable(step, mode, described(self.late_workers(), self._storage.url))

    def reason_of_loss(self, step: int, mode: ModeKeys) -> str:
        """Return which damaged or missing file may have held a step of a mode, as a clause; empty if none may."""
        error = self.lost_rows().holding(step, ModeKeys.parse(mode))
        return "" if error is None else f"a file that is lost or damaged may have held it ({error})"

    def lost_rows(self) -> LostRows:
        """Return which rows are lost with the damaged files."""
        return self._derived(("lost",), lambda: LostRows(self._with_rows(self.snapshot.damaged), self.saved))

    def _with_rows(self, damaged: Mapping[str, FileError]) -> dict[str, FileError]:
        """Return the damaged files without the claims of workers that published nothing, such as stray copies."""
        return {
            path: error
            for path, error in damaged.items()
            if not path.startswith(f"{COLLECTIONS}/") or self._storage.list(index_folder(worker_of(path)))
        }

    def _awaited(self, step: int, mode: ModeKeys) -> FileError | None:
        """Return the error of a file that may hold a step of a mode, and may be read yet; None if there is none."""
        awaited = self.snapshot.awaited
        if not awaited:
            return None
        rows = self._derived(("awaited", *awaited), lambda: LostRows(awaited, self.saved))
        return rows.holding(step, ModeKeys.parse(mode))


def _last_saved(progress: tuple[int, int] | None) -> tuple[int | None, datetime | None]:
    """Return the last step of a worker and when it saved that, in UTC; None for both if it has saved none."""
    if progress is None:
        return None, None
    step, saved_at_us = progress
    return step, datetime(1970, 1, 1) + timedelta(microseconds=saved_at_us)
