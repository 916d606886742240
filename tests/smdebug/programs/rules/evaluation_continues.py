"""Invoke a rule at all steps, although its condition is met."""

from smdebug.rules import Rule, invoke_rule

from torch_job import trained


class Every(Rule):
    def __init__(self, base_trial):
        super().__init__(base_trial, action_str="")
        self.steps = []

    def invoke_at_step(self, step):
        self.steps.append(step)
        return True


trial = trained(4)
rule = Every(trial)
try:
    invoke_rule(rule)
except Exception as error:
    print("raised", type(error).__name__)
print(rule.steps)
