"""The point in a run at which the steps of a worker continue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class SavedStep(NamedTuple):
    """A step that a worker has published."""

    mode: str
    mode_step: int
    global_step: int


@dataclass(frozen=True)
class Progress:
    """The progress of a run: the next step, over all modes and in each, and the session that continues it."""

    session: int = 0
    global_step: int = 0
    mode_steps: Mapping[str, int] = field(default_factory=dict)


def after(steps: Iterable[SavedStep]) -> Progress:
    """Return the point after saved steps."""
    next_global, next_of_mode = 0, dict[str, int]()
    for each in steps:
        next_global = max(next_global, each.global_step + 1)
        next_of_mode[each.mode] = max(next_of_mode.get(each.mode, 0), each.mode_step + 1)
    return Progress(0, next_global, next_of_mode)


def latest(points: Sequence[Progress]) -> Progress:
    """Return the furthest of several points, over all modes and in each."""
    modes = {mode for point in points for mode in point.mode_steps}
    counts = {mode: max(point.mode_steps.get(mode, 0) for point in points) for mode in modes}
    return Progress(0, max((point.global_step for point in points), default=0), counts)


def in_step_with(worker: str, saved: Mapping[str, Sequence[SavedStep]]) -> dict[str, Sequence[SavedStep]]:
    """Return the steps of the workers that are in step with a worker, itself included.

    Two workers are in step if each step of a mode that both saved has the same global step. So a worker that stopped
    earlier, or has saved nothing, is in step with the other.
    """
    own = {each[:2]: each.global_step for each in saved.get(worker, ())}
    return {
        other: steps
        for other, steps in saved.items()
        if other == worker or all(own.get(each[:2], each.global_step) == each.global_step for each in steps)
    }


def lies_at(point: Progress, steps: Iterable[SavedStep], mode: str, step: int) -> bool:
    """Return whether a step of a mode comes next at a point that separates earlier from later steps of a worker."""
    return point.mode_steps.get(mode, 0) == step and all(
        (each.global_step < point.global_step) == (each.mode_step < point.mode_steps.get(each.mode, 0))
        and (each[:2] != (mode, step) or each.global_step == point.global_step)
        for each in steps
    )


def place_of(places: Mapping[int, int], step: int) -> int | None:
    """Return the global step of a step of a mode; None unless it follows from the saved steps around it."""
    if step in places:
        return places[step]
    before, following = _around(places, step)
    if before is None or following is None or places[following] - places[before] != following - before:
        return None
    return places[before] + step - before


def _around(places: Iterable[int], step: int) -> tuple[int | None, int | None]:
    before = max((each for each in places if each < step), default=None)
    return before, min((each for each in places if each >= step), default=None)


def rewound(steps: Sequence[SavedStep], mode: str, step: int) -> Progress:
    """Return the point at which a given step of a mode comes next, by the saved steps of workers in step.

    The counts of other modes go back to the steps that were saved before it. The global step of an unsaved step follows
    from the saved steps of its mode around it; if steps of other modes lie between these, it is the latest possible
    one. The run may not have reached the step yet.
    """
    places = {each.mode_step: each.global_step for each in steps if each.mode == mode}
    before, following = _around(places, step)
    earliest = step if before is None else places[before] + step - before
    if following is None:
        point = after(steps)
        first = max(point.global_step, earliest)
    else:
        first = max(earliest, places[following] - (following - step))
        point = after(each for each in steps if each.global_step < first)
    return Progress(0, first, {**point.mode_steps, mode: step})
