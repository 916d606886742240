"""Whether a step is there, may still come, or never will: the three states, and the rule between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum


class StepState(Enum):
    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


def step_state(step: int, steps: Sequence[int], complete: Sequence[bool], job_ended: bool) -> StepState:
    """The state of `step`, given all existing `steps`, ascending, and which of them are complete.

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
