"""Invoke a rule from a step to before another."""

from smdebug.rules import Rule, invoke_rule

from torch_job import trained


class Every(Rule):
    def __init__(self, base_trial):
        super().__init__(base_trial, action_str="")
        self.steps = []

    def invoke_at_step(self, step):
        self.steps.append(step)
        return False


trial = trained(6)
rule = Every(trial)
invoke_rule(rule, start_step=1, end_step=4)
print(rule.steps)
