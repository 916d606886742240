"""The states of a step: saved, not yet saved, or never to be saved."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from ...mode import ModeKeys
from ...snapshot.columns import Integers, Lookup
from ...snapshot.saved_steps import MODES, SavedSteps

_NEVER = np.iinfo(np.int64).max


class StepState(Enum):
    """True if a step is complete, may be yet, or never will be."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


def step_state(step: int, steps: Sequence[int], complete: Sequence[bool], job_ended: bool) -> StepState:
    """Return the state of `step`, given all saved `steps`, ascending, and which of them are complete.

    With n the least existing step >= `step`: without n the step may come until the job ends. If n is a later step,
    `step` was skipped, which is certain once a complete step >= n exists. If n is `step`, it is complete or not yet.
    """
    position = bisect_left(steps, step)
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
    """The workers of the run that will write no more."""
    not_begun: frozenset[str]
    """The workers of earlier sessions that have saved nothing in it."""
    first_step: int
    """The first global step of the session. Nothing before it is still being written."""
    job_ended: bool
    window: int
    """More incomplete steps than this are not waited for: the older half of them counts as complete."""


@dataclass(frozen=True)
class _Progress:
    """The progress of all workers that are waited for: the steps that each of them has reached."""

    all_write: bool
    """True if each of them has saved a step."""
    last_step: int = _NEVER
    last_of_mode: int = _NEVER
    """The last step of the mode that is common to those which have saved any."""
    last_step_of_others: int = _NEVER
    """The last global step that is common to the others."""


def complete_steps(saved: SavedSteps, mode: ModeKeys, session: Session) -> tuple[list[int], list[bool]]:
    """Return the steps of a mode, ascending, and which of them are complete: the first ones.

    A worker writes its steps in order. What all have written or gone past is complete: a global step, and a step of a
    mode among the workers that have saved any.
    """
    rows, lookup = saved.in_mode(mode)
    steps = lookup.distinct
    if session.job_ended or not steps:
        return steps, [True] * len(steps)
    progress = _progress(saved, mode, session)
    first = lookup.least(rows.global_step)
    before = first < session.first_step
    complete = before | _is_reached(first, progress)
    if mode is not ModeKeys.GLOBAL:
        in_mode = (np.array(steps) <= progress.last_of_mode) & (first <= progress.last_step_of_others)
        together = first < saved.first_uneven_step
        complete = np.where(together, complete, before | (in_mode & progress.all_write))
    complete |= first <= _last_given_up(np.array(saved.by_global_step.distinct), progress, session)
    # A step is complete once a later one is.
    number = len(steps) - int(complete[::-1].argmax()) if complete.any() else 0
    return steps, [True] * number + [False] * (len(steps) - number)


def _progress(saved: SavedSteps, mode: ModeKeys, session: Session) -> _Progress:
    awaited = session.num_workers - len(session.ended)
    if awaited <= 0:
        return _Progress(True)
    # A worker that has ended will not write the steps that it lacks. One that has not begun may yet go back.
    done = session.ended | session.not_begun
    writes = np.array([worker not in done for worker in saved.workers], bool)
    rows = saved.columns
    rows = rows.of((rows.global_step >= session.first_step) & writes[rows.worker])
    workers = Lookup(rows.worker)
    last = workers.greatest(rows.global_step)
    if len(last) < awaited:
        return _Progress(False)
    of_mode = workers.greatest(np.where(rows.mode == MODES.index(mode), rows.mode_step, -1))
    furthest = np.argsort(-last, kind="stable")[:awaited]
    last, of_mode = last[furthest], of_mode[furthest]
    has_mode = of_mode >= 0
    return _Progress(
        True,
        int(last.min()),
        int(of_mode[has_mode].min(initial=_NEVER)),
        int(last[~has_mode].min(initial=_NEVER)),
    )


def _is_reached(steps: Integers, progress: _Progress) -> npt.NDArray[np.bool_]:
    """Return which global steps all workers have written or gone past."""
    return (steps <= progress.last_step) & progress.all_write


def _last_given_up(steps: Integers, progress: _Progress, session: Session) -> int:
    """Return the last global step that is not waited for any longer; -1 if there is none."""
    late = steps[(steps >= session.first_step) & ~_is_reached(steps, progress)]
    return int(late[len(late) // 2 - 1]) if len(late) > max(session.window, 1) else -1
