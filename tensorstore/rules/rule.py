"""The base class of rules, which check a condition at each step of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, ClassVar

from ..errors import ConfigurationError, RuleEvaluationConditionMet, UnavailableError
from ..read.opening import no_refresh
from ..read.run_reader import refreshing
from ..read.trial import Trial, run_reader_of
from .action import Firing, parse_actions
from .finding import Finding, FindingLog
from .reader import StepView, reader_of
from .req_tensors import RequiredTensors


class Rule(ABC):
    """The base class of rules, which check a condition at each step of a run.

    A rule of your own implements `invoke_at_step`, and calls `super().__init__(base_trial)` in its constructor.

    Args:
        base_trial: Trial of the run to check.
        action_str: Actions to execute when the rule fires: an action, a list of them, or their JSON.
        other_trials: Trials of further runs, for a rule that compares runs.

    Raises:
        ConfigurationError: A trial or an action is of another type.
    """

    SKIPS_ALIKE: ClassVar[bool] = False
    """True if only the mode and the tensors of a step decide whether it has nothing to evaluate."""

    def __init__(
        self, base_trial: Trial, action_str: Any = "", other_trials: Trial | Iterable[Trial] | None = None
    ) -> None:
        if not isinstance(base_trial, Trial):
            raise ConfigurationError(f"rule {type(self).__name__}: base_trial must be a Trial, got {base_trial!r}")
        self.base_trial = base_trial
        self.other_trials = _trials(other_trials)
        self.trials = [base_trial, *self.other_trials]
        self.rule_name = type(self).__name__
        self.actions = parse_actions(action_str)
        self.req_tensors = RequiredTensors(base_trial, self.other_trials)
        self._reports: list[Finding] = []
        self._step: int | None = None

    # A rule of your own implements these.

    def set_required_tensors(self, step: int) -> None:  # noqa: B027  # a rule need not have it
        """Add the tensors that are needed at a step: `self.req_tensors.add(name, steps=[step])`.

        A step that lacks one of them is skipped.

        Args:
            step: Global step.
        """

    @abstractmethod
    def invoke_at_step(self, step: int) -> bool:
        """Return whether the condition is met at a step. Call `report` to describe the finding.

        Args:
            step: Global step.

        Returns:
            True if the condition is met.
        """

    def invoke_between_steps(self) -> bool:
        """Check the condition while the job runs and no new step comes. This is called several times a second.

        Returns:
            True if the condition is met.
        """
        return False

    def reason_to_stop_waiting(self) -> str | None:
        """Return a reason to stop waiting for steps, if any. It is called after `invoke_between_steps`.

        Returns:
            The reason, which ends the evaluation of all rules, or None.
        """
        return None

    def invoke_at_end(self) -> bool:
        """Check the condition after the last step.

        Returns:
            True if the condition is met.
        """
        return False

    def missing(self, skipped: Exception) -> str | None:
        """Return a sentence about missing data, after the rule could not be evaluated at any step.

        Args:
            skipped: Error of the last step that was skipped.

        Returns:
            The sentence; None if this is not an error.
        """
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
        """Add a finding. It counts if the invocation that reports it returns True.

        Args:
            sentence: Description of the finding.
            tensor: Name of the tensor.
            worker: Name of the worker.
            observed: Number that crossed the threshold.
            threshold: The threshold.
            step: Global step; None for that of the invocation.
        """
        step = self._step if step is None else step
        self._reports.append(
            Finding(self.rule_name, step, self._mode(step, worker), worker, tensor, observed, threshold, sentence)
        )

    @property
    def has_reports(self) -> bool:
        """True if this invocation has reported a finding."""
        return bool(self._reports)

    # These run a rule.

    def invoke(self, step: int) -> None:
        """Wait for a step and evaluate the rule there.

        If its condition is met, the findings are saved in the run and the actions executed.

        Args:
            step: Global step.

        Raises:
            RuleEvaluationConditionMet: The condition is met.
            StepUnavailable: The step was not saved.
            NoMoreData: The job ended before the step.
        """
        self.base_trial.wait_for_steps([step])
        findings = self.evaluate(step)
        if findings:
            FindingLog(run_reader_of(self.base_trial).storage, flush_seconds=0).add(findings)
            self.act(findings)
            raise RuleEvaluationConditionMet(self.rule_name, step)

    def evaluate(self, step: int) -> list[Finding]:
        """Evaluate the rule at a saved step, without executing actions.

        Args:
            step: Global step.

        Returns:
            The findings; none if the condition is not met.
        """
        for trial in self.other_trials:
            _wait(trial, step)
        with refreshing(list(map(run_reader_of, self.trials)), False):
            self._begin(step)
            self.set_required_tensors(step)
            self.req_tensors.fetch()
            return self._reported(self.invoke_at_step(step), step)

    def evaluate_together(self, view: StepView) -> list[Finding] | None:
        """Evaluate the rule at several saved steps at once, if that has the same findings as one step at a time.

        Args:
            view: The steps.

        Returns:
            The findings, in the order of steps; None if the rule evaluates its steps one by one.
        """
        return None

    def evaluate_between_steps(self) -> list[Finding]:
        """Evaluate the rule while no new step comes, without executing actions.

        Returns:
            The findings; none if the condition is not met.
        """
        self._begin(None)
        return self._reported(self.invoke_between_steps(), None)

    def evaluate_at_end(self) -> list[Finding]:
        """Evaluate the rule after the last step, without executing actions.

        Returns:
            The findings; none if the condition is not met.
        """
        with no_refresh(self.trials):
            self._begin(None)
            return self._reported(self.invoke_at_end(), None)

    def act(self, findings: list[Finding]) -> None:
        """Execute the actions of the rule.

        Args:
            findings: Findings that are passed to them, at least one.
        """
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

    def _mode(self, step: int | None, worker: str | None) -> str | None:
        mode = None if step is None else reader_of(self.base_trial).mode(step, worker)
        return None if mode is None else mode.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_trial.name!r})"


def _trials(value: Trial | Iterable[Trial] | None) -> list[Trial]:
    trials = [] if value is None else [value] if isinstance(value, Trial) else list(value)
    for trial in trials:
        if not isinstance(trial, Trial):
            raise ConfigurationError(
                f"other_trials must be a Trial or several, got {trial!r}; open one by create_trial(path)"
            )
    return trials


def _wait(trial: Trial, step: int) -> None:
    """Wait until another run has the step or can no longer get it; reading it then raises the error."""
    with suppress(UnavailableError):
        trial.wait_for_steps([step])
