"""The numbers of steps: one count over all modes, and one in each."""

from __future__ import annotations

from tensortrial.format.record import Step
from tensortrial.mode import ModeKeys
from tensortrial.write.claim import Progress


class StepCount:
    """Counts the steps of a job, from where the run has come to."""

    def __init__(self, progress: Progress) -> None:
        self._start(progress)

    def _start(self, progress: Progress) -> None:
        self._progress = progress
        self._global_step = progress.global_step
        self._mode_steps = {mode: progress.mode_step(mode) for mode in ModeKeys}

    def next(self, mode: ModeKeys) -> Step:
        """The step of the mode that comes next. It is not counted yet."""
        return Step(mode, self._mode_steps[mode], self._global_step)

    def count(self, step: Step) -> None:
        """The step has begun."""
        self._global_step += 1
        self._mode_steps[step.mode] += 1

    def take_back(self, step: Step) -> None:
        """The step that was counted last did not happen. The next one gets its number."""
        self._global_step -= 1
        self._mode_steps[step.mode] -= 1

    def go_on_after(self, progress: Progress) -> None:
        """Count from where the run has come to by now, if that is not where it was."""
        if progress != self._progress:
            self._start(progress)

    def start_at(self, mode: ModeKeys, step: int) -> None:
        """Begin with this number, unless there are steps already."""
        if not self._global_step:
            self._mode_steps[mode] = self._global_step = step
