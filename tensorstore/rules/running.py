"""The evaluation of rules over the steps of a run: one rule by `invoke_rule`, several in one pass by `watch`."""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from ..errors import (
    ConfigurationError,
    FileError,
    InsufficientInformationForRuleInvocation,
    NoMoreData,
    RuleEvaluationConditionMet,
    RunStalled,
    TensorUnavailableForStep,
    UnavailableError,
)
from ..mode import ModeKeys, checked_step
from ..progress import progress_bar
from ..read.opening import no_refresh
from ..read.trial import Trial, run_reader_of
from ..read.waiting import Waiting
from .action import ActionList
from .finding import Finding, FindingLog, Findings, three_digits
from .reader import StepView, reader_of
from .rule import Rule

logger = logging.getLogger("tensortrial.rules")

_Evaluate: TypeAlias = "Callable[[], list[Finding]]"
_Reason: TypeAlias = "Callable[[], str | None]"
POLL_SECONDS = 0.2
_ACTIONS_SECONDS = 30.0
CANNOT_RUN = "cannot run, and is evaluated no further: "


def invoke_rule(
    rule_obj: Rule,
    start_step: int = 0,
    end_step: int | None = None,
    raise_eval_cond: bool = False,
    *,
    record: bool = True,
) -> list[Finding]:
    """Evaluate a rule at each saved step of a range.

    A step that lacks a required tensor is skipped. If the condition is met, the actions are executed, the finding is
    logged, and the evaluation continues. In the training thread, which cannot wait for its own steps, the evaluation
    ends after the last saved step.

    Args:
        rule_obj: The rule.
        start_step: First global step.
        end_step: Global step to end before; None for the end of the job.
        raise_eval_cond: Whether to raise RuleEvaluationConditionMet when the condition is met.
        record: Whether to save findings in the run.

    Returns:
        The findings, which a notebook shows as a table.

    Raises:
        RuleEvaluationConditionMet: The condition is met, and `raise_eval_cond` is true.
        InsufficientInformationForRuleInvocation: The run has nothing that the built-in rule could check.
    """
    found = Findings()
    evaluation = _Evaluation(rule_obj)
    log = FindingLog(run_reader_of(rule_obj.base_trial).storage, record=record)
    try:
        for step in follow(rule_obj.base_trial, start_step, end_step, reason_to_stop=rule_obj.reason_to_stop_waiting):
            findings = evaluation.at(step)
            if not findings:
                continue
            found += findings
            log.add(findings)
            rule_obj.act(findings)
            if raise_eval_cond:
                raise RuleEvaluationConditionMet(rule_obj.rule_name, findings[0].step or 0)
            logger.warning("the condition of rule %s was met: %s", rule_obj.rule_name, _summary(findings))
            if evaluation.done:
                break
        else:
            last = evaluation.at_end()
            found += last
            if last:
                log.add(last)
                rule_obj.act(last)
    except NoMoreData:
        pass
    finally:
        log.flush()
    return found


def watch(
    trial: Trial,
    rules: Iterable[Rule],
    start_step: int = 0,
    end_step: int | None = None,
    *,
    record: bool = True,
    poll_seconds: float = POLL_SECONDS,
    timeout: float | None = None,
) -> Iterator[Finding]:
    """Follow a run, live or ended, and yield the findings of rules as they are made, until the job ends.

    All rules go through the steps together, so that data that several of them need is read once. A rule that raises an
    error or lacks data yields one finding with `failed` set, and the others continue. Actions are executed.

    The watch also ends, and logs why, if there is no new step for twice the threshold of StalledTraining. In the
    training thread, which cannot wait for its own steps, it ends after the last saved step.

    Args:
        trial: Trial of the run to follow.
        rules: Rules made for that trial.
        start_step: First global step.
        end_step: Global step to end before; None for the end of the job.
        record: Whether to save findings in the run.
        poll_seconds: Seconds from one poll for new steps to the next.
        timeout: Seconds to wait for each new step; None for as long as the job runs.

    Returns:
        An iterator over the findings.

    Raises:
        ConfigurationError: A rule was made for another trial.
        RunStalled: No new step came for `timeout` seconds, and the job has not ended. It is raised after all findings.
    """
    if not isinstance(trial, Trial):
        raise ConfigurationError(f"trial must be a Trial, got {trial!r:.200}; create_trial opens one")
    if isinstance(rules, Rule):
        raise ConfigurationError("watch takes a list of rules, got one: pass [rule]")
    evaluations = [_Evaluation(rule) for rule in rules]
    for evaluation in evaluations:
        if evaluation.rule.base_trial is not trial:
            raise ConfigurationError(
                f"rule {evaluation.rule.rule_name} belongs to another trial; create it with the trial that is watched"
            )
    steps = polled(
        trial, start_step, end_step, poll_seconds, timeout=timeout, reason_to_stop=_first_reason(evaluations)
    )
    return _watch(trial, evaluations, steps, FindingLog(run_reader_of(trial).storage, record=record))


def evaluate_saved(
    trial: Trial, rules: Iterable[Rule], damaged: dict[str, FileError], progress: bool = False
) -> list[Finding]:
    """Evaluate built-in rules on the steps that are saved now, without waiting for others. Nothing is recorded.

    Args:
        trial: Trial of the run.
        rules: Built-in rules made for that trial, without actions.
        damaged: Receives the files that cannot be read, by their paths.
        progress: Whether to show a progress bar, if tqdm is installed.

    Returns:
        The findings. Findings of rules that could not be evaluated at any step have `failed` set. Steps with an
        unreadable file are left out; `trial.damaged` and `damaged` name the file.
    """
    evaluations = [_Evaluation(rule, damaged) for rule in rules]
    steps, findings = trial.steps(), list[Finding]()
    with progress_bar(len(steps), progress, "diagnose", "step") as advance:
        for step, due in _prepared(trial, evaluations, steps):
            findings += [finding for each in due for finding in each.safely_at(step)]
            advance(1)
        findings += [finding for each in evaluations for finding in each.safely_at_end()]
    failed = {finding.rule for finding in findings if finding.failed}
    return findings + [
        Finding(each.rule.rule_name, None, None, None, None, None, None, each.why_never, failed=True)
        for each in evaluations
        if each.why_never is not None and each.rule.rule_name not in failed
    ]


def _prepared(
    trial: Trial, evaluations: list[_Evaluation], steps: Sequence[int]
) -> Iterator[tuple[int | None, list[_Evaluation]]]:
    """Yield steps one after another, each with the rules to evaluate there.

    Rules that can have evaluated several steps before, together. They are left out after their last finding.
    """
    for group, view in reader_of(trial).together(steps):
        for each in evaluations:
            each.prepare(group[-1], view)
        due = evaluations
        for step in group:
            yield step, due
            due = [each for each in due if each.is_due_later]


def _watch(
    trial: Trial, evaluations: list[_Evaluation], polls: Iterator[Sequence[int]], log: FindingLog
) -> Iterator[Finding]:
    stalled = None
    try:
        try:
            for new in polls:
                for step, due in _prepared(trial, evaluations, new) if new else [(None, evaluations)]:
                    yield from _kept(log, (each.safely_at(step) for each in due))
                    log.tick()
        except RunStalled as exc:
            stalled = exc
        yield from _kept(log, (each.safely_at_end() for each in evaluations))
        if stalled is not None:
            raise stalled
    finally:
        log.flush()
        ActionList(*(each.rule.actions for each in evaluations)).close(_ACTIONS_SECONDS)


def _first_reason(evaluations: list[_Evaluation]) -> _Reason:
    return lambda: next((why for each in evaluations if (why := each.rule.reason_to_stop_waiting())), None)


def follow(trial: Trial, start_step: int = 0, end_step: int | None = None, **options: Any) -> Iterator[int | None]:
    """Yield the complete global steps of a run as they are saved, and None at each poll without a new one.

    The options are those of `polled`.
    """
    for new in polled(trial, start_step, end_step, **options):
        yield from new
        if not new:
            yield None


def polled(
    trial: Trial,
    start_step: int = 0,
    end_step: int | None = None,
    poll_seconds: float = POLL_SECONDS,
    *,
    timeout: float | None = None,
    reason_to_stop: _Reason = lambda: None,
) -> Iterator[Sequence[int]]:
    """Yield the complete global steps of a run that are new at each poll; none if no step is.

    The iterator ends with the job, when a step at or after `end_step` is complete, or when `reason_to_stop` returns a
    reason. In the thread that writes the run, it ends after the last saved step.

    Raises:
        RunStalled: No new step came for `timeout` seconds.
    """
    if end_step is not None and checked_step(start_step) >= checked_step(end_step):
        raise ConfigurationError(f"start_step must be less than end_step, got {start_step} and {end_step}")
    last = checked_step(start_step) - 1
    waiting = Waiting(run_reader_of(trial))
    while True:
        steps, ended = _seen(trial)
        new = steps[bisect_left(steps, last + 1) : None if end_step is None else bisect_left(steps, end_step)]
        if new:
            yield new
            last = new[-1]
        if ended or (end_step is not None and bool(steps) and steps[-1] >= end_step):
            if last < start_step:
                before = "" if end_step is None else f" and before step {end_step}"
                logger.warning(
                    "run %s: no step was saved from step %s on%s, so none is evaluated", trial.path, start_step, before
                )
            return
        if new:
            waiting.begin()
            continue
        if why := _why_no_step_comes(trial, last) or reason_to_stop():
            logger.warning("run %s: the evaluation ends, and the job has not ended: %s", trial.path, why)
            return
        if timeout is not None and waiting.seconds >= timeout:
            raise RunStalled(trial.path, f"no new step for {three_digits(waiting.seconds)} seconds: {waiting.reason}")
        waiting.tick()
        yield []
        time.sleep(poll_seconds)


def _why_no_step_comes(trial: Trial, last: int) -> str | None:
    if not run_reader_of(trial).waits_for_itself(last + 1, ModeKeys.GLOBAL):
        return None
    return (
        "this thread writes the run, and would wait for itself; evaluate in another process or thread, or again later"
    )


def _seen(trial: Trial) -> tuple[list[int], bool]:
    run_reader_of(trial).refresh()
    with no_refresh(trial):
        # The state of the job is read before the steps, so that no step is missed if the job has ended.
        ended = trial.loaded_all_steps
        return trial.steps(), ended


def _check_rule(rule: Any) -> None:
    """Check that a rule can be evaluated. Raises ConfigurationError for a class, another object, or no trial."""
    if isinstance(rule, type):
        name = rule.__name__
        raise ConfigurationError(f"expected a rule, got the class {name}: create one with a trial, as in {name}(trial)")
    if not isinstance(rule, Rule):
        raise ConfigurationError(f"expected a rule, got {type(rule).__name__}")
    if not hasattr(rule, "base_trial"):
        raise ConfigurationError(
            f"rule {type(rule).__name__} has no trial: call super().__init__(base_trial) in its constructor"
        )


class _Evaluation:
    """The evaluation of one rule, step by step.

    Args:
        rule: The rule.
        damaged: Receives the files that cannot be read, whose steps are left out; None to raise the errors.
    """

    def __init__(self, rule: Rule, damaged: dict[str, FileError] | None = None) -> None:
        _check_rule(rule)
        self.rule = rule
        self.done = False
        self._damaged = damaged
        self._evaluated = 0
        self._skipped: UnavailableError | FileError | None = None
        self._last: int | None = None
        """The last of the steps with the same tensors."""
        self._found: defaultdict[int, list[Finding]] | None = None
        """The findings at these steps, if they were evaluated together."""

    def at(self, step: int | None) -> list[Finding]:
        """Return the findings of a step, or of the time between steps; [] if data are unavailable."""
        if step is None:
            return self.rule.evaluate_between_steps()
        try:
            findings = self.rule.evaluate(step)
        except NoMoreData:
            self.done = True
            raise
        except UnavailableError as exc:
            # A damaged file is the reason that matters, also if later steps do not have the tensors.
            self._skipped = self._skipped if isinstance(self._skipped, FileError) else exc
            return []
        except FileError as exc:
            if self._damaged is None:
                raise
            self._damaged.setdefault(exc.path, exc)
            self._skipped = exc
            return []
        except RuleEvaluationConditionMet as exc:
            # A rule may raise RuleEvaluationConditionMet instead of returning True.
            findings = [Finding(self.rule.rule_name, step, None, None, None, None, None, str(exc))]
            self.done = exc.end_of_rule
        self._evaluated += 1
        return findings

    def at_end(self) -> list[Finding]:
        findings = self.rule.evaluate_at_end()
        if self._evaluated == 0 and self._skipped is not None:
            missing = self.rule.missing(self._skipped)
            if missing is not None:
                raise InsufficientInformationForRuleInvocation(self.rule.rule_name, missing)
            logger.warning("rule %s was evaluated at no step: %s", self.rule.rule_name, self._skipped)
        return findings

    @property
    def why_never(self) -> str | None:
        """Return why the rule could not be evaluated at any step; None if it was evaluated."""
        return None if self._evaluated or self._skipped is None else str(self._skipped)

    def prepare(self, last: int, view: StepView | None) -> None:
        """Evaluate the rule at all steps of a view, if it can: `safely_at` then returns its findings there.

        With a view, the steps up to `last` have the same tensors, and all of them have nothing to evaluate if one has.
        """
        self._last, self._found = None if view is None else last, None
        if view is None or self.done:
            return
        try:
            found = self.rule.evaluate_together(view)
            self._evaluated += found is not None
        except UnavailableError as exc:
            self._skipped, found = exc, []
        if found is not None:
            self._found = defaultdict(list)
            for finding in found:  # one of an earlier step, such as an evaluation that has ended, comes first
                self._found[max(finding.step or 0, view.infos[0].global_step)].append(finding)

    @property
    def is_due_later(self) -> bool:
        """True unless the prepared steps that remain have no findings."""
        return self._found is None or bool(self._found)

    def safely_at(self, step: int | None) -> list[Finding]:
        if self.done:
            return []
        if self._found is not None and step is not None:
            found = self._found.pop(step, [])
            return self._safely(lambda: found, step) if found else []
        evaluated = self._evaluated
        findings = self._safely(lambda: self.at(step), step)
        is_skipped = evaluated == self._evaluated and isinstance(self._skipped, TensorUnavailableForStep)
        if is_skipped and self._last is not None and self.rule.SKIPS_ALIKE and not self.done:
            last, self._last, self._found = self._last, None, defaultdict(list)
            self._safely(lambda: self.at(last), last)  # whose error is shown if no other step has anything
        return findings

    def safely_at_end(self) -> list[Finding]:
        return [] if self.done else self._safely(self.at_end, None)

    def _safely(self, evaluate: _Evaluate, step: int | None) -> list[Finding]:
        try:
            findings = evaluate()
            if findings:
                self.rule.act(findings)
            return findings
        except NoMoreData:
            return []
        except InsufficientInformationForRuleInvocation as exc:
            sentence = exc.message
        except Exception as exc:
            logger.exception(
                "rule %s raised at step %s, and is evaluated no further; the other rules are", self.rule.rule_name, step
            )
            sentence = f"it raised {type(exc).__name__}: {exc}"
        self.done = True
        sentence = f"{CANNOT_RUN}{sentence}"
        return [Finding(self.rule.rule_name, step, None, None, None, None, None, sentence, failed=True)]


def _kept(log: FindingLog, evaluated: Iterable[list[Finding]]) -> Iterator[Finding]:
    for findings in evaluated:
        if findings:
            log.add(findings)
            yield from findings


def _summary(findings: list[Finding]) -> str:
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{findings[0]}{more}"
