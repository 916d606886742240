"""The point in a run at which a job continues that goes back to a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from ..format.index_types import StepSummary
from .claim import Progress, Resumption


def rewound(
    progress: Progress,
    found: Resumption,
    saved: Mapping[str, Sequence[StepSummary]],
    worker: str,
    mode: str,
    step: int,
) -> Progress:
    """Return the point at which a given step of a mode comes next for a worker.

    Workers that are in step continue at one global step, which the first one finds. A worker that is not in step with
    the others, or goes back to another step than they do, continues at its own.

    Args:
        progress: The point at which the session begins that was `found`.
        found: The session.
        saved: All published steps by worker, in the order in which they were published.
        worker: The name of the worker.
        mode: The name of the mode.
        step: The number of the step in its mode; one that the run has not reached yet is fine.
    """
    own, steps = saved.get(worker, ()), list(chain(*saved.values()))
    known = {(mode, step): progress.global_step} if found.is_joined else {}
    in_step = all(known.setdefault(each[:2], each.global_step) == each.global_step for each in steps)
    if found.is_joined and in_step and _continues_at(progress, own, mode, step):
        return progress
    if own and (found.is_joined or not in_step):
        progress, steps = found.own_progress(), list(own)
    return _rewound(progress, steps, mode, step)


def _continues_at(progress: Progress, own: Iterable[StepSummary], mode: str, step: int) -> bool:
    """Return whether a step of a mode comes next at a point, and the steps of a worker lie around it as they should."""
    return progress.mode_steps.get(mode, 0) == step and all(
        (each.global_step < progress.global_step) == (each.mode_step < progress.mode_steps.get(each.mode, 0))
        for each in own
    )


def _rewound(progress: Progress, steps: Sequence[StepSummary], mode: str, step: int) -> Progress:
    """Return the point at which a given step of a mode comes next, by saved steps.

    The counts of other modes go back to those of the steps that were saved before it. The global step of a step that
    was not saved follows from the saved steps of its mode around it; where steps of other modes lie between these, it
    is the latest possible one.
    """
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
