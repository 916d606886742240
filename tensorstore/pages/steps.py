"""The steps of a run as arrays: the saved steps of each worker in a mode, and the missing ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..format.arrow_arrays import numpy_of
from ..mode import ModeKeys
from ..read.trial import Trial
from ..snapshot.workers import natural

Integers = np.ndarray[Any, np.dtype[np.int64]]


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


def mode_steps(trial: Trial, mode: str) -> ModeSteps:
    """Return the steps of a mode; GLOBAL is all modes."""
    column = "global_step" if mode == "GLOBAL" else "mode_step"
    found = trial.sql(
        f"select {column} as step, worker, epoch_ms(max(saved_at)) as saved_at from steps "
        "where $mode = 'GLOBAL' or mode = $mode group by 1, worker order by 1",
        {"mode": mode},
    ).to_arrow_table()
    if not found.num_rows:
        none = np.zeros(0, np.int64)
        return ModeSteps(none, none, none, [])
    names = found["worker"].combine_chunks().dictionary_encode()
    known = names.dictionary.to_pylist()
    workers = sorted(known, key=natural)
    position = np.array([workers.index(each) for each in known], np.int64)
    return ModeSteps(
        numpy_of(found["step"].combine_chunks()),
        position[numpy_of(names.indices)],
        numpy_of(found["saved_at"].combine_chunks()),
        workers,
    )


def modes_of(trial: Trial) -> list[str]:
    """Return the modes that have steps, training first."""
    order = [ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT, ModeKeys.GLOBAL]
    saved = {name for (name,) in trial.sql("select distinct mode from steps").fetchall()}
    return [mode.name for mode in order if mode.name in saved]
