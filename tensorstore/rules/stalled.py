"""A rule on the passing of time."""

from __future__ import annotations

import time

from ..read.late_worker import described
from ..read.step_log import StepInfo
from .action import StopTraining
from .builtin import BuiltinRule
from .parameter import flag, number, text
from .reader import StepView


class StalledTraining(BuiltinRule):
    """No new step comes for `threshold` seconds, and the job has not ended. Where it lasts twice as long, the watching
    ends. In a run that is looked at afterwards: such a time lies between two saved steps. Also known as
    StalledTrainingRule."""

    threshold: float = number(1800.0, "fires after so many seconds", least=0)
    stop_training_on_fire: bool = flag(False, "ask the hooks to stop, as the action StopTraining does")
    training_job_name_prefix: str | None = text(
        None, "accepted for SageMaker's configurations; the run says which job is meant"
    )

    def check(self) -> None:
        if self.stop_training_on_fire:
            self.actions.actions.append(StopTraining())

    def reset(self) -> None:
        self._newest: StepInfo | None = None
        self._seen_at = time.monotonic()
        self._has_fired = False

    def judge(self, view: StepView) -> None:
        before = self.reader.previous_info(view.step)
        waited_live, self._has_fired = self._has_fired, False
        self._newest, self._seen_at = view.info, time.monotonic()
        if before is None or waited_live:
            return
        seconds = view.info.saved_at - before.saved_at
        if before.saved_at and seconds > self.threshold:
            sentence = f"{seconds:.0f} seconds passed after step {before.global_step}, above {self.threshold:g}"
            self.report(sentence, observed=seconds, threshold=self.threshold)

    def invoke_between_steps(self) -> bool:
        # By the reader's own clock, which need not agree with the clock of the machine that trains.
        seconds = time.monotonic() - self._seen_at
        if self._has_fired or seconds <= self.threshold:
            return False
        self._has_fired = True
        last = self._newest
        after = "since it is watched" if last is None else f"after step {last.global_step}"
        step = None if last is None else last.global_step
        sentence = f"no new step for {seconds:.0f} seconds {after}, above {self.threshold:g}"
        late = self.base_trial.late_workers()
        worker = late[0].worker if len(late) == 1 else None
        reason = described(late, self.base_trial.path)
        sentence += f": {reason}" if reason else ""
        self.report(sentence, worker=worker, observed=seconds, threshold=self.threshold, step=step)
        return True

    def given_up(self) -> str | None:
        seconds = time.monotonic() - self._seen_at
        if not self._has_fired or seconds <= 2 * self.threshold:
            return None
        return f"no new step for {seconds:.3g} seconds, more than twice the threshold of {self.rule_name}"


StalledTrainingRule = StalledTraining
