"""Write a rule, and invoke it until its condition is met."""

from smdebug.exceptions import RuleEvaluationConditionMet
from smdebug.rules import Rule, invoke_rule

from torch_job import trained


class LargeStep(Rule):
    def __init__(self, base_trial, limit="2"):
        super().__init__(base_trial, action_str="")
        self.limit = int(limit)

    def invoke_at_step(self, step):
        return step > self.limit


trial = trained(5)
try:
    invoke_rule(LargeStep(trial), raise_eval_cond=True)
except RuleEvaluationConditionMet as error:
    print(type(error).__name__, error.rule_name, error.step)
