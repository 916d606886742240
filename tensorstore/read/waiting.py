"""Waits for steps, and logs the reason of a long wait."""

from __future__ import annotations

import logging
import time

from ..errors import StepNotYetAvailable
from ..mode import ModeKeys
from .run_reader import RunReader
from .step_states import StepState, described

logger = logging.getLogger(__name__)

SAY_AFTER_SECONDS = 30.0
POLL_SECONDS = 0.05


class Waiting:
    """A wait that logs a warning after `SAY_AFTER_SECONDS` without news, and each time its length has doubled."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self.begin()

    def begin(self) -> None:
        """Start the wait again: something new has come."""
        self._began = time.monotonic()
        self._say_after = SAY_AFTER_SECONDS

    @property
    def seconds(self) -> float:
        """Seconds since something new came."""
        return time.monotonic() - self._began

    def tick(self) -> None:
        """Log the reason of the wait, if it is time. Called repeatedly during the wait."""
        if self.seconds < self._say_after:
            return
        self._say_after *= 2
        logger.warning("run %s: no new step for %.3g seconds: %s", self._reader.storage.url, self.seconds, self.reason)

    def wait_for(self, step: int, mode: ModeKeys, deadline: float | None) -> None:
        """Wait until a step of a mode is complete, at most until `deadline` by the monotonic clock.

        Raise StepUnavailable, NoMoreData, and StepNotYetAvailable at the deadline or if this thread writes the step.
        """
        while (state := self._state(step, mode)) is StepState.NOT_YET_AVAILABLE:
            if self._reader.always is not None:
                raise StepNotYetAvailable(step, mode, "a trial of one snapshot does not wait for new steps")
            if self._reader.waits_for_itself(step, mode):
                raise StepNotYetAvailable(step, mode, "this thread writes the run, and would wait for itself")
            if deadline is not None and time.monotonic() >= deadline:
                raise StepNotYetAvailable(step, mode, self.reason)
            self.tick()
            time.sleep(POLL_SECONDS)
        if state is StepState.UNAVAILABLE:
            raise self._reader.states.missing(step, mode)

    def _state(self, step: int, mode: ModeKeys) -> StepState:
        self._reader.refresh()  # also inside `no_refresh`, where the wait would not end without it
        return self._reader.states.of(step, mode)

    @property
    def reason(self) -> str:
        """The reason for the lack of new steps: some workers are late, or all of them."""
        url = self._reader.storage.url
        late = described(self._reader.states.late_workers(), url)
        return late or f"the job has not ended. If it was killed, run `tensortrial mark-ended {url}`"
