"""The steps of a run as arrays: the saved steps of each worker in a mode, and the missing ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..mode import ModeKeys
from ..snapshot.columns import Integers, distinct
from ..snapshot.saved_steps import SavedSteps
from ..snapshot.workers import natural


@dataclass(frozen=True)
class ModeSteps:
    """The saved steps of one mode. The arrays have one element for each step and worker."""

    steps: Integers
    """The steps, counted in the mode."""
    worker_of: Integers
    """The position of the worker in `workers`."""
    saved_at_ms: Integers
    workers: list[str]

    @property
    def first(self) -> int:
        return int(self.steps.min()) if len(self.steps) else 0

    @property
    def end(self) -> int:
        return int(self.steps.max()) + 1 if len(self.steps) else 0

    def missing(self, is_live: bool) -> Integers:
        """Return the steps that lack a worker, and those inside gaps between saved steps.

        The newest steps of a running job are not missing, but pending.
        """
        steps, counts = np.unique(self.steps, return_counts=True)
        if not len(steps):
            return steps
        partial = steps[counts < len(self.workers)]
        if is_live and len(partial):
            whole = steps[counts >= len(self.workers)]
            partial = partial[partial < (whole[-1] if len(whole) else steps[0])]
        return np.concatenate([partial, _inside_gaps(steps)])


def _inside_gaps(steps: Integers) -> Integers:
    """Return the missing steps between saved ones, if steps were saved at a regular interval."""
    distances = np.diff(steps)
    if len(distances) < 3:
        return steps[:0]
    usual = int(np.median(distances))
    wide = np.flatnonzero(distances > 1.5 * usual)
    if len(wide) * 10 > len(distances):
        return steps[:0]  # there is no regular interval
    return np.concatenate([np.arange(steps[i] + usual, steps[i + 1], usual) for i in wide] or [steps[:0]])


def mode_steps(saved: SavedSteps, mode: str) -> ModeSteps:
    """Return the steps of a mode; GLOBAL is all modes."""
    columns, _ = saved.in_mode(ModeKeys[mode])
    steps = columns.global_step if mode == "GLOBAL" else columns.mode_step
    order = np.lexsort((columns.saved_at, columns.worker, steps))
    steps, saved_at, worker = steps[order], columns.saved_at[order], columns.worker[order]
    last = np.ones(len(steps), bool)
    last[:-1] = (np.diff(steps) != 0) | (np.diff(worker) != 0)
    codes = sorted(distinct(worker).tolist(), key=lambda code: natural(saved.workers[code]))
    position = np.zeros(len(saved.workers), np.int64)
    position[codes] = range(len(codes))
    workers = [saved.workers[code] for code in codes]
    return ModeSteps(steps[last], position[worker[last]], (saved_at[last] + 500) // 1000, workers)


def modes_of(saved: SavedSteps) -> list[str]:
    """Return the modes that have steps, training first."""
    return [mode.name for mode in saved.modes()]
