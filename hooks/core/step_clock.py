"""The clock of a job's steps: the mode, and the step that is open."""

from __future__ import annotations

from tensortrial.format.record import Step
from tensortrial.mode import ModeKeys
from tensortrial.write.claim import Progress

from .checkpoint_steps import CheckpointSteps
from .counters import StepCounter


class StepClock:
    """The mode and the open step of a job. At most one step is open.

    While a step is held (`with hook.step():`), it stays open, and what begins meanwhile is a part of it. A step that
    was opened for values saved ahead of it is the one that begins next. The clock is not thread-safe: the recorder
    holds its lock around each call.
    """

    def __init__(self, progress: Progress, checkpoint: CheckpointSteps) -> None:
        self.mode = ModeKeys.GLOBAL
        self.step: Step | None = None
        """The open step."""
        self.last_saved: Step | None = None
        """The newest closed step at which a tensor was saved."""
        self._counter = StepCounter(progress)
        self._checkpoint = checkpoint
        self._counter.start_after(checkpoint.read())
        self._holds = 0
        self._is_ahead = False

    @property
    def held(self) -> bool:
        """Whether a step is held."""
        return self._holds > 0

    def next_step(self) -> Step:
        """Return the step of the mode that comes next, without opening it."""
        return self._counter.next(self.mode)

    def newest(self) -> dict[ModeKeys, int]:
        """Return the number of the newest step of each mode that has one, GLOBAL's over all modes."""
        return self._counter.newest()

    def continues(self) -> bool:
        """Return whether what begins now is the open step, or a part of it, and not a new step."""
        if self.step is None or self._holds:
            return self.step is not None
        is_ahead, self._is_ahead = self._is_ahead, False
        return is_ahead

    def open(self, step: Step) -> None:
        """Open a step and count it. The one before must be closed."""
        self._counter.count(step)
        self.step, self._is_ahead = step, False

    def mark_ahead(self) -> None:
        """Make the open step the one that begins next, because values were saved ahead of it."""
        self._is_ahead = not self._holds

    def close(self) -> Step | None:
        """Close the open step and return it, if there is one."""
        if self.step is not None:
            self._checkpoint.keep(self.newest())
        return self._take()

    def _take(self) -> Step | None:
        step, self.step, self._is_ahead = self.step, None, False
        return step

    def withdraw(self) -> None:
        """Take back the open step, which did not happen. The next one gets its number."""
        step = self._take()
        if step is not None:
            self._counter.take_back(step)

    def hold(self) -> None:
        """Hold the open step until `release`. Holds may be nested."""
        self._holds += 1

    def release(self) -> bool:
        """End one hold. Return whether it was the last one."""
        self._holds -= 1
        return not self._holds

    def start_at(self, step: int) -> None:
        """Begin a new run with this step. A run that has steps continues after them."""
        self._counter.start_at(self.mode, step)

    def continue_after(self, progress: Progress) -> None:
        """Count on from where the run is now."""
        self._counter.continue_after(progress)
