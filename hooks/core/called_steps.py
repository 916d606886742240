"""The steps of values that the caller saves by a call: the open one, the next one, or one that the call names."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tensortrial.errors import ConfigurationError, shown
from tensortrial.format.record import Step
from tensortrial.mode import ModeKeys

from .run_writer import RunWriter
from .step_clock import StepClock

_MAX_STEP = 10**12 - 1
"""Steps are a part of paths, with twelve digits."""
_MAX_WAITING = 1000


def step_number(number: Any) -> int:
    """Return the number of a step that a caller passes, as an integer of any library.

    Raises:
        ConfigurationError: It is not an integer, is negative, or is too large.
    """
    try:
        found = operator.index(number)
    except Exception:  # noqa: BLE001 - whatever a foreign `__index__` raises
        raise ConfigurationError(f"step must be an integer, got {shown(number)}") from None
    if isinstance(number, bool) or not 0 <= found <= _MAX_STEP:
        raise ConfigurationError(f"step must be an integer from 0 to {_MAX_STEP}, got {shown(number)}")
    return found


class CalledSteps:
    """The steps of values that are saved by a call. The recorder holds its lock around each call.

    A value for the open step is added to it. One for a past step becomes a row of its own, which is passed to the
    writer at once. One for a later step waits until that step begins, if numbered steps are under way; otherwise the
    later step begins now.

    Args:
        clock: The clock of the job.
        run: The run to write to.
        begin: Begins the next step of a mode, or a later one of a given number, and returns it. In the current mode it
            is opened, ahead of what runs in it.
    """

    def __init__(self, clock: StepClock, run: RunWriter, begin: Callable[[ModeKeys, int | None], Step | None]) -> None:
        self._clock, self._run, self._begin = clock, run, begin
        self._waiting: dict[tuple[ModeKeys | None, int | None], Step] = {}
        """Values for later steps, by their numbers; None stands for the next one, whose number is unknown."""
        self.joins_first = False
        """True if values that are saved before any step belong to the first step, whatever its mode."""

    def find(self, number: int | None, mode: ModeKeys | None) -> Step | None:
        """Return the step to save values at; None if the hook was turned off. Call `enqueue` after adding them.

        Without a number, it is the open step of the mode or, if it has none, the next one.

        Raises:
            ConfigurationError: Nothing can be saved at this step.
        """
        clock = self._clock
        if self.joins_first and mode is None and number is None and clock.newest()[ModeKeys.GLOBAL] < 0:
            return self._wait(None, None)
        mode = clock.mode if mode is None else mode
        opened = clock.step if clock.step is not None and clock.step.mode is mode else None
        if opened is not None and number in (None, opened.mode_step):
            return opened
        following = clock.mode_steps[mode]
        if number is not None and number < following:
            return self._past(mode, number)
        # Values for the very next step wait for it, also while a step runs that the framework began.
        may_open = clock.step is None or clock.is_ahead or not (clock.held or number == following)
        if mode not in clock.numbered and (may_open if mode is clock.mode else number is not None):
            return self._begin(mode, number)
        return self._wait(mode, number)

    def enqueue(self, step: Step) -> None:
        """Pass a step's values to the writer, unless the step is open or has not begun."""
        if step is not self._clock.step and step.mode_step >= 0:
            self._put(step)

    def open(self, step: Step) -> None:
        """Add the waiting values of a step that opens to it, and write those of skipped steps."""
        for mode, number in self._of_mode(step.mode):
            if number is None or number == step.mode_step:
                step.records += self._waiting.pop((mode, number)).records
            elif number < step.mode_step:
                waited = self._waiting[mode, number]
                place = self._clock.global_step_of(step.mode, number)
                # If no number is left before the first step of the mode, they are saved at that one.
                waited.mode_step = step.mode_step if place is None else number
                waited.global_step = step.global_step if place is None else place
                self._put(waited)
                del self._waiting[mode, number]

    def close(self) -> None:
        """Write the values whose steps have not begun, under the step numbers that they were saved for."""
        for mode in sorted(ModeKeys, key=lambda mode: mode is not self._clock.mode):
            for key in self._of_mode(mode):
                waited, number = self._waiting.pop(key), key[1]
                step = self._clock.skip_to(mode, self._clock.mode_steps[mode] if number is None else number)
                step.records = waited.records
                self._put(step)

    def _of_mode(self, mode: ModeKeys) -> list[tuple[ModeKeys | None, int | None]]:
        """Return the keys of the waiting values of a mode, the one for the next step first, then by number."""
        if not self._waiting:
            return []
        return sorted(
            (key for key in self._waiting if key[0] in (mode, None)), key=lambda key: -1 if key[1] is None else key[1]
        )

    def _past(self, mode: ModeKeys, number: int) -> Step:
        found = self._clock.global_step_of(mode, number)
        if found is None:
            found = self._run.global_step_of(mode, number)
        if found is None:
            raise ConfigurationError(
                f"step {number} of mode {mode.name} is before the first step that this job counted in the mode, and no "
                "steps around it were saved earlier; save at a step that the run has"
            )
        return Step(mode, number, found)

    def _wait(self, mode: ModeKeys | None, number: int | None) -> Step:
        if mode is not None and len(self._waiting) >= _MAX_WAITING and (mode, number) not in self._waiting:
            raise ConfigurationError(
                f"step {number} of mode {mode.name} is far ahead: the next one is {self._clock.mode_steps[mode]}, and "
                f"values for {_MAX_WAITING} later steps wait already; save at the steps of the job"
            )
        return self._waiting.setdefault((mode, number), Step(mode or self._clock.mode, -1, -1))

    def _put(self, step: Step) -> None:
        if step.records:
            self._run.put(step, closes=True)
