"""The states of a step: saved, not yet saved, or never to be saved."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile


class StepState(Enum):
    """Whether a step is complete, may be yet, or never will be."""

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


@dataclass
class SettledSteps:
    """The steps of a mode that stay complete. When the run has grown, only the steps after them are fetched."""

    session: tuple[int, int]
    """The number of workers, and the step at which they began: with others, nothing is settled."""
    last_step: int = -1
    """The global step of the last one."""
    rows: int = 0
    """The number of steps of workers up to that one. With another number, all are fetched again."""
    steps: list[int] = field(default_factory=list)

    def follow(self, rows: Sequence[tuple[int, bool, int, bool]]) -> bool:
        """Return whether rows of later global steps are all later in the mode, too.

        A row is a step, whether it is complete, its global step, and whether it is settled.
        """
        return not self.steps or not rows or rows[0][0] > self.steps[-1]

    def add(self, rows: Sequence[tuple[int, bool, int, bool]]) -> None:
        """Add the rows that are settled now."""
        for step, _, global_step, _ in takewhile(lambda row: row[3] and row[2] > self.last_step, rows):
            self.steps.append(step)
            self.last_step = global_step
