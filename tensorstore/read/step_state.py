"""Whether a step is there, may still come, or never will: the three states, and the rule between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile


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


@dataclass
class SettledSteps:
    """The steps of a mode that are complete for good, as far as they were told: only what follows them is asked for
    when the run has grown."""

    session: tuple[int, int]
    """How many workers write, and the step at which they began: with others, nothing is settled."""
    last_step: int = -1
    """The global step of the last one."""
    rows: int = 0
    """How many steps of workers were known up to that one. With another number, they are told anew."""
    steps: list[int] = field(default_factory=list)

    def follow(self, rows: Sequence[tuple[int, bool, int, bool]]) -> bool:
        """Whether steps that come after these, with whether they are complete, their global steps and whether they are
        settled, are all later in the mode, too."""
        return not self.steps or not rows or rows[0][0] > self.steps[-1]

    def add(self, rows: Sequence[tuple[int, bool, int, bool]]) -> None:
        """Take in those that are settled now."""
        for step, _, global_step, _ in takewhile(lambda row: row[3] and row[2] > self.last_step, rows):
            self.steps.append(step)
            self.last_step = global_step
