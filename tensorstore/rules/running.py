"""Rules over the steps of a run: one of them by `invoke_rule`, many in one pass by `watch`."""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from tensortrial.errors import (
    ConfigurationError,
    InsufficientInformationForRuleInvocation,
    NoMoreData,
    RuleEvaluationConditionMet,
    UnavailableError,
)
from tensortrial.refreshing import no_refresh
from tensortrial.trial import Trial

from .finding import Finding, FindingLog
from .rule import Rule

logger = logging.getLogger("tensortrial.rules")

_Evaluate: TypeAlias = "Callable[[], list[Finding]]"
POLL_SECONDS = 0.2
_ACTIONS_SECONDS = 30.0


def invoke_rule(
    rule_obj: Rule,
    start_step: int = 0,
    end_step: int | None = None,
    raise_eval_cond: bool = False,
    *,
    record: bool = True,
) -> list[Finding]:
    """Evaluate a rule at each saved global step s with start_step <= s < end_step, and give what it found.

    Without `end_step` it goes on until the job ends. A step at which something is not available is passed over. Where
    the condition is met, the actions are done, it is logged, and the evaluation goes on; with `raise_eval_cond` it is
    raised as RuleEvaluationConditionMet. Findings are kept in the run, unless `record` is False.

    Raises InsufficientInformationForRuleInvocation if a built-in rule finds nothing that it could judge, and
    whatever else the rule raises.
    """
    found: list[Finding] = []
    evaluation = _Evaluation(rule_obj)
    log = _log(rule_obj.base_trial, record)
    try:
        for step in follow(rule_obj.base_trial, start_step, end_step):
            findings = evaluation.at(step)
            if not findings:
                continue
            found += findings
            _keep(log, findings)
            rule_obj.act(findings)
            if raise_eval_cond:
                raise RuleEvaluationConditionMet(rule_obj.rule_name, findings[0].step or 0)
            logger.warning("the condition of rule %s was met: %s", rule_obj.rule_name, _summary(findings))
            if evaluation.done:
                break
        else:
            last = evaluation.at_end()
            found += last
            _keep(log, last)
            if last:
                rule_obj.act(last)
    except NoMoreData:
        pass
    finally:
        if log is not None:
            log.close()
    return found


def watch(
    trial: Trial,
    rules: Iterable[Rule],
    start_step: int = 0,
    end_step: int | None = None,
    *,
    record: bool = True,
    poll_seconds: float = POLL_SECONDS,
) -> Iterator[Finding]:
    """Follow a run, live or ended, and yield what the rules find, as it is found; ends with the job.

    All rules go through the steps together, so that what several of them need is read once. A rule that raises, or that
    has not what it needs, yields one finding with `failed` set, and the others go on. Findings are kept in the run,
    unless `record` is False; actions are done.
    """
    evaluations = [_Evaluation(rule) for rule in rules]
    for evaluation in evaluations:
        if evaluation.rule.base_trial is not trial:
            raise ConfigurationError(
                f"rule {evaluation.rule.rule_name} was made for another trial than the one watched"
            )
    return _watch(trial, evaluations, start_step, end_step, record, poll_seconds)


def _watch(
    trial: Trial, evaluations: list[_Evaluation], start_step: int, end_step: int | None, record: bool, poll: float
) -> Iterator[Finding]:
    log = _log(trial, record)
    try:
        for step in follow(trial, start_step, end_step, poll):
            for evaluation in evaluations:
                findings = evaluation.safely_at(step)
                _keep(log, findings)
                yield from findings
            if log is not None:
                log.tick()
        for evaluation in evaluations:
            findings = evaluation.safely_at_end()
            _keep(log, findings)
            yield from findings
    finally:
        if log is not None:
            log.close()
        deadline = time.monotonic() + _ACTIONS_SECONDS
        for evaluation in evaluations:
            evaluation.rule.actions.close(max(0.0, deadline - time.monotonic()))


def follow(
    trial: Trial, start_step: int = 0, end_step: int | None = None, poll_seconds: float = POLL_SECONDS
) -> Iterator[int | None]:
    """The complete global steps of a run, as they come; None each time that there is no new one. Ends with the job, or
    when a step at or after `end_step` is there."""
    if end_step is not None and start_step >= end_step:
        raise ConfigurationError(f"no step s has {start_step} <= s < {end_step}")
    last = start_step - 1
    while True:
        steps, ended = _seen(trial)
        first = bisect_left(steps, last + 1)
        past_end = end_step is not None and bool(steps) and steps[-1] >= end_step
        for step in steps[first : None if end_step is None else bisect_left(steps, end_step)]:
            yield step
            last = step
        if ended or past_end:
            if last < start_step:
                logger.warning("run %s: there is no step to evaluate from %s to %s", trial.path, start_step, end_step)
            return
        if first == len(steps):
            yield None
            time.sleep(poll_seconds)


def _seen(trial: Trial) -> tuple[list[int], bool]:
    trial.refresh()
    with no_refresh(trial):
        # Asked first: steps that are there when the job has ended are all there will be.
        ended = trial.loaded_all_steps()
        return trial.steps(), ended


class _Evaluation:
    """A rule on its way through the steps."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.done = False
        self._evaluated = 0
        self._passed_over: UnavailableError | None = None

    def at(self, step: int | None) -> list[Finding]:
        """Findings of a step, or of the time between steps. A step at which something is not available has none."""
        if step is None:
            return self.rule.evaluate_between_steps()
        try:
            findings = self.rule.evaluate(step)
        except NoMoreData:
            self.done = True
            raise
        except UnavailableError as exc:
            self._passed_over = exc
            return []
        except RuleEvaluationConditionMet as exc:
            # A rule may raise what it should return.
            findings = [_of_exception(self.rule, step, exc)]
            self.done = exc.end_of_rule
        self._evaluated += 1
        return findings

    def at_end(self) -> list[Finding]:
        findings = self.rule.evaluate_at_end()
        if self._evaluated == 0 and self._passed_over is not None:
            missing = self.rule.missing(self._passed_over)
            if missing is not None:
                raise InsufficientInformationForRuleInvocation(self.rule.rule_name, missing)
            logger.warning("rule %s was evaluated at no step: %s", self.rule.rule_name, self._passed_over)
        return findings

    def safely_at(self, step: int | None) -> list[Finding]:
        return [] if self.done else self._safely(lambda: self.at(step), step)

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
            logger.exception("rule %s raised at step %s; the others go on", self.rule.rule_name, step)
            sentence = f"it raised {type(exc).__name__}: {exc}"
        self.done = True
        sentence = f"cannot run, and is evaluated no further: {sentence}"
        return [Finding(self.rule.rule_name, step, None, None, None, None, None, sentence, failed=True)]


def _of_exception(rule: Rule, step: int, exc: RuleEvaluationConditionMet) -> Finding:
    return Finding(rule.rule_name, step, None, None, None, None, None, str(exc))


def _log(trial: Trial, record: bool) -> FindingLog | None:
    return FindingLog(trial.reader.storage) if record else None


def _keep(log: FindingLog | None, findings: list[Finding]) -> None:
    if log is not None and findings:
        log.add(findings)


def _summary(findings: list[Finding]) -> str:
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{findings[0]}{more}"
