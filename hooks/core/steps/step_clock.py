"""The clock of a job's steps: the mode, and the step that is open."""

from __future__ import annotations

from tensortrial.format.record import Step
from tensortrial.mode import ModeKeys
from tensortrial.write.progress import Progress

from .checkpoint_steps import CheckpointSteps
from .counters import StepCounter


class StepClock(StepCounter):
    """The steps of a job: their numbers, the mode, and the open step. At most one step is open.

    While a step is held (`with hook.step():`), it stays open, and what begins meanwhile is a part of it. A step that
    was opened for values saved ahead of it is the one that begins next. In a mode whose steps were given numbers by the
    caller, nothing else begins a step. The clock is not thread-safe: the recorder holds its lock around each call.
    """

    def __init__(self, progress: Progress, checkpoint: CheckpointSteps) -> None:
        self.mode = ModeKeys.GLOBAL
        self.step: Step | None = None
        """The open step."""
        self.last_saved: Step | None = None
        """The newest closed step at which a tensor was saved."""
        super().__init__(progress)
        self._checkpoint = checkpoint
        self.start_after(checkpoint.read())
        self._holds = 0
        self._is_ahead = False
        self._mode_before: ModeKeys | None = None
        self._numbered: set[ModeKeys] = set()
        self.begun_by_call = False
        """True if `begin_step` began the step that is held."""

    @property
    def held(self) -> bool:
        """True if a step is held."""
        return self._holds > 0

    @property
    def may_begin_by_call(self) -> bool:
        """True if `begin_step` may begin a step: not inside a `with hook.step():` block."""
        return self._holds == int(self.begun_by_call)

    @property
    def is_ahead(self) -> bool:
        """True if the open step was opened for values saved ahead of it, and has not begun yet."""
        return self._is_ahead

    def is_numbered(self, mode: ModeKeys) -> bool:
        """Return whether the caller has given a step of the mode its number, so that nothing else begins one."""
        return mode in self._numbered

    def skip_to(self, mode: ModeKeys, number: int) -> Step:
        """Count a later step of any mode, which is never open, and return it."""
        step = self.next(mode, number)
        self.count(step)
        return step

    def continues(self) -> bool:
        """Return whether what begins now is the open step, or a part of it, and not a new step."""
        if self.step is None or self._holds:
            return self.step is not None
        is_ahead, self._is_ahead = self._is_ahead, False
        return is_ahead

    def open(self, step: Step) -> None:
        """Open a step and count it. The one before must be closed."""
        self.count(step)
        self.step, self._is_ahead = step, False

    def mark_ahead(self) -> None:
        """Make the open step the one that begins next, because values were saved ahead of it."""
        self._is_ahead = not self._holds

    def close(self) -> Step | None:
        """Close the open step and return it, if there is one."""
        if self.step is not None and self._checkpoint.writes:
            self._checkpoint.keep(self.newest())
        return self._take()

    def _take(self) -> Step | None:
        step, self.step, self._is_ahead = self.step, None, False
        return step

    def withdraw(self) -> None:
        """Take back the open step, which did not happen. The next one gets its number."""
        step = self._take()
        if step is not None:
            self.take_back(step)

    def set_mode(self, mode: ModeKeys) -> None:
        """Count the following steps in another mode, also after the step that is held."""
        self.mode, self._mode_before = mode, None

    def hold(self) -> None:
        """Hold the open step until `release`. Holds may be nested."""
        self._holds += 1

    def release(self) -> bool:
        """End one hold. Return whether it was the last one, after which the mode is that from before the step."""
        self._holds = max(0, self._holds - 1)
        if not self._holds:
            self.begun_by_call = False
            self.mode, self._mode_before = self._mode_before or self.mode, None
        return not self._holds

    def select(self, mode: ModeKeys) -> None:
        """Count the step that is about to be held in a mode, and the following ones as before."""
        self._mode_before, self.mode = self.mode, mode

    def number_by_caller(self, mode: ModeKeys) -> None:
        """Let only the caller begin steps of a mode from now on: other numbers would come between."""
        self._numbered.add(mode)
