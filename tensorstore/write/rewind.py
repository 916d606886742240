"""The point in a run at which a job continues that goes back to a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..format.index_types import StepSummary
from .claim import Progress


def rewound(progress: Progress, saved: Iterable[StepSummary], mode: str, step: int) -> Progress:
    """Return the point at which a given step of a mode comes next.

    The counts of other modes go back to those of the steps that were saved before it. The global step of a step that
    was not saved follows from the saved steps of its mode around it; where steps of other modes lie between these, it
    is the latest possible one.

    Args:
        progress: The point after the last published step.
        saved: All published steps, in the order in which they were published.
        mode: The name of the mode.
        step: The number of the step in its mode; one that the run has not reached yet is fine.
    """
    steps = list(saved)
    of_mode = {each.mode_step: each.global_step for each in steps if each.mode == mode}
    before = max((each for each in of_mode if each < step), default=None)
    after = min((each for each in of_mode if each >= step), default=None)
    earliest = step if before is None else of_mode[before] + step - before
    if after is None:
        counts = {**progress.mode_steps, mode: step}
        return replace(progress, global_step=max(progress.global_step, earliest), mode_steps=counts)
    first = max(earliest, of_mode[after] - (after - step))
    counts = {mode: step}
    for each in steps:
        if each.mode != mode and each.global_step < first:
            counts[each.mode] = max(counts.get(each.mode, 0), each.mode_step + 1)
    return replace(progress, global_step=first, mode_steps=counts)
