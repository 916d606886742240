"""Invoke a rule at one step."""

from smdebug.exceptions import RuleEvaluationConditionMet
from smdebug.rules import Rule

from torch_job import trained


class Met(Rule):
    def invoke_at_step(self, step):
        return step == 1


trial = trained(3)
rule = Met(trial, "")
for step in range(3):
    try:
        rule.invoke(step)
        print(step, "not met")
    except RuleEvaluationConditionMet:
        print(step, "met")
