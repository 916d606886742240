"""Invoke a rule on a run of which every second step was saved."""

from smdebug.rules import Rule, invoke_rule

from torch_job import trained


class Every(Rule):
    def __init__(self, base_trial):
        super().__init__(base_trial, action_str="")
        self.steps = []

    def invoke_at_step(self, step):
        self.steps.append(step)
        return False


trial = trained(6, save_interval=2)
rule = Every(trial)
invoke_rule(rule, start_step=0, end_step=5)
print(rule.steps)
