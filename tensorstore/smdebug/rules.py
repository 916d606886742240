"""The names of smdebug.rules, for scripts for smdebug."""

from __future__ import annotations

import logging
from abc import ABC
from functools import partial
from typing import Any

from tensortrial import rules
from tensortrial.rules.running import invoke_rule

__all__ = ["Rule", "invoke_rule"]


class Report(dict[str, Any]):
    """A dictionary for findings of a rule. A call reports a finding, as `tensortrial.rules.Rule.report` does."""

    def __init__(self, report: Any) -> None:
        super().__init__(RuleTriggered=0, Violations=0, Details={}, Datapoints=0, RuleParameters="")
        self._report = report

    def __call__(self, sentence: str, **details: Any) -> None:
        """Add a finding.

        Args:
            sentence: Description of the finding.
            details: Further arguments of `tensortrial.rules.Rule.report`.
        """
        self._report(sentence, **details)


class Rule(rules.Rule, ABC):
    """The base class of a script's rules, with a dictionary `report` and a `logger`.

    Args:
        base_trial: Trial of the run to check.
        action_str: Actions to execute when the rule fires.
        other_trials: Trials of further runs.
    """

    def __init__(self, base_trial: Any, action_str: Any = "", other_trials: Any = None) -> None:
        super().__init__(base_trial, action_str, other_trials)
        self.logger = logging.getLogger("tensortrial.rules")
        self.report = Report(partial(rules.Rule.report, self))  # type: ignore[method-assign]
