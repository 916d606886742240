"""What a rule is: a question that is asked of a run at each of its steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ..errors import ConfigurationError, RuleEvaluationConditionMet, UnavailableError
from ..read.refreshing import no_refresh
from ..read.trial import Trial
from .action import Firing, parse_actions
from .finding import Finding, FindingLog
from .reader import reader_of
from .req_tensors import RequiredTensors


class Rule(ABC):
    """A rule over `base_trial`, and over `other_trials` if it compares runs.

    A rule of your own implements `invoke_at_step`, and calls `super().__init__(base_trial)` in its constructor.
    `action_str` says what to do when it fires: an action, or the JSON of some (see `tensortrial.rules.action`).
    """

    def __init__(
        self, base_trial: Trial, action_str: Any = "", other_trials: Trial | Iterable[Trial] | None = None
    ) -> None:
        if not isinstance(base_trial, Trial):
            raise ConfigurationError(f"rule {type(self).__name__}: base_trial must be a trial, not {base_trial!r}")
        self.base_trial = base_trial
        self.other_trials = _trials(other_trials)
        self.trials = [base_trial, *self.other_trials]
        self.rule_name = type(self).__name__
        self.actions = parse_actions(action_str)
        self.req_tensors = RequiredTensors(base_trial, self.other_trials)
        self._reports: list[Finding] = []
        self._step: int | None = None

    # What a rule of one's own implements.

    def set_required_tensors(self, step: int) -> None:  # noqa: B027  # a rule need not say it
        """Say what is needed at `step`: `self.req_tensors.add(name, steps=[step])`. A step at which something of it is
        not there is passed over."""

    @abstractmethod
    def invoke_at_step(self, step: int) -> bool:
        """Whether the condition is met at a global step. `report` says more of what was seen."""

    def invoke_between_steps(self) -> bool:
        """The same, while the job runs and no new step comes. Called several times a second."""
        return False

    def given_up(self) -> str | None:
        """Return why nobody needs to wait for the run any longer, or None: whoever follows it then ends. Called after
        `invoke_between_steps`."""
        return None

    def invoke_at_end(self) -> bool:
        """The same, once the last step was seen."""
        return False

    def missing(self, passed_over: Exception) -> str | None:
        """Asked when the rule could be evaluated at no step: what the run lacks, if that is an error."""
        return None

    def report(
        self,
        sentence: str,
        *,
        tensor: str | None = None,
        worker: str | None = None,
        observed: float | None = None,
        threshold: float | None = None,
        step: int | None = None,
    ) -> None:
        """Add a finding. It counts if the invocation in which it was reported returns True."""
        step = self._step if step is None else step
        self._reports.append(
            Finding(self.rule_name, step, self._mode(step), worker, tensor, observed, threshold, sentence)
        )

    @property
    def has_reports(self) -> bool:
        """Whether anything was reported in this invocation."""
        return bool(self._reports)

    # What runs it.

    def invoke(self, step: int) -> None:
        """Wait for a global step and evaluate the rule there.

        If its condition is met: keep the findings in the run, do the actions, and raise RuleEvaluationConditionMet.
        Raises StepUnavailable or NoMoreData if the step will never be there.
        """
        self.base_trial.wait_for_steps([step])
        findings = self.evaluate(step)
        if findings:
            FindingLog(self.base_trial.reader.storage, flush_seconds=0).add(findings)
            self.act(findings)
            raise RuleEvaluationConditionMet(self.rule_name, step)

    def evaluate(self, step: int) -> list[Finding]:
        """What is found at a step that is there; nothing if the condition is not met. Does no action."""
        for trial in self.other_trials:
            _wait(trial, step)
        with no_refresh(self.trials):
            self._begin(step)
            self.set_required_tensors(step)
            self.req_tensors.fetch()
            return self._reported(self.invoke_at_step(step), step)

    def evaluate_between_steps(self) -> list[Finding]:
        self._begin(None)
        return self._reported(self.invoke_between_steps(), None)

    def evaluate_at_end(self) -> list[Finding]:
        with no_refresh(self.trials):
            self._begin(None)
            return self._reported(self.invoke_at_end(), None)

    def act(self, findings: list[Finding]) -> None:
        """Do the actions."""
        self.actions.act(Firing(self.base_trial, self.rule_name, findings[0].step, findings))

    def _begin(self, step: int | None) -> None:
        self._step = step
        self._reports = []
        self.req_tensors.clear()

    def _reported(self, met: bool, step: int | None) -> list[Finding]:
        if not met:
            return []
        if not self._reports:
            self.report("its condition was met", step=step)
        return list(self._reports)

    def _mode(self, step: int | None) -> str | None:
        info = None if step is None else reader_of(self.base_trial).info(step)
        return None if info is None else info.mode.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_trial.name!r})"


def _trials(given: Trial | Iterable[Trial] | None) -> list[Trial]:
    trials = [] if given is None else [given] if isinstance(given, Trial) else list(given)
    for trial in trials:
        if not isinstance(trial, Trial):
            raise ConfigurationError(f"other_trials must be trials, not {trial!r}")
    return trials


def _wait(trial: Trial, step: int) -> None:
    """Wait until another run has the step, or will never have it: what needs it then says so."""
    with suppress(UnavailableError):
        trial.wait_for_steps([step])
