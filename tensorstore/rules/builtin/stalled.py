"""A rule on the time between steps."""

from __future__ import annotations

import time

from ...read.step_states import described
from ...snapshot.saved_steps import StepInfo
from ..action import StopTraining
from ..finding import three_digits
from ..parameter import flag, number, text
from ..reader import StepView
from .base import BuiltinRule


class StalledTraining(BuiltinRule):
    """Fires if no new step is saved for `threshold` seconds although the job has not ended.

    After twice that time the evaluation ends. In a run that has ended, the rule fires if two consecutive saved steps
    are that far apart.
    """

    threshold: float = number(1800.0, "seconds without a new step after which it fires", least=0)
    stop_training_on_fire: bool = flag(False, "stop training, as the action StopTraining does")
    training_job_name_prefix: str | None = text(
        None, "accepted because SageMaker's configurations have it, and ignored"
    )

    def check(self) -> None:
        if self.stop_training_on_fire:
            self.actions.actions.append(StopTraining())

    def reset(self) -> None:
        self._newest: StepInfo | None = None
        self._seen_at = time.monotonic()
        self._has_fired = self._gap_is_known = False

    def judge(self, view: StepView) -> None:
        if self._newest is not None and self._newest.global_step == view.step:
            return  # the same step of another worker
        before = self.reader.previous_info(view.step)
        self._newest, self._seen_at, self._has_fired = view.info, time.monotonic(), False
        if before is None or not before.saved_at:
            return
        seconds = view.info.saved_at - before.saved_at
        if seconds <= self.threshold:
            return
        if self._gap_is_known:
            self._gap_is_known = False
        else:
            passed = f"{three_digits(seconds)} seconds passed after step {before.global_step}"
            self.report(f"{passed}, above {self.threshold:g}", observed=seconds, threshold=self.threshold)

    def invoke_between_steps(self) -> bool:
        # The time is that of this machine's clock, because the clock of the training machine may differ.
        seconds = time.monotonic() - self._seen_at
        if self._has_fired or seconds <= self.threshold:
            return False
        # A step that was open during the stall is published together with the first one after it.
        self._has_fired = self._gap_is_known = True
        last = self._newest
        after = "since it is watched" if last is None else f"after step {last.global_step}"
        step = None if last is None else last.global_step
        sentence = f"no new step for {three_digits(seconds)} seconds {after}, above {self.threshold:g}"
        late = self.base_trial.late_workers()
        worker = late[0].worker if len(late) == 1 else None
        reason = described(late, self.base_trial.path)
        sentence += f": {reason}" if reason else ""
        self.report(sentence, worker=worker, observed=seconds, threshold=self.threshold, step=step)
        return True

    def reason_to_stop_waiting(self) -> str | None:
        """Return a sentence if a stall has lasted twice the threshold; else None."""
        seconds = time.monotonic() - self._seen_at
        if not self._has_fired or seconds <= 2 * self.threshold:
            return None
        return f"no new step for {three_digits(seconds)} seconds, more than twice the threshold of {self.rule_name}"


StalledTrainingRule = StalledTraining
