"""Write a rule as the documents show it, without an action."""

from smdebug.rules import Rule, invoke_rule

from torch_job import trained


class LargeStep(Rule):
    def __init__(self, base_trial, limit="2"):
        super().__init__(base_trial, other_trials=None)
        self.limit = int(limit)
        self.seen = []

    def invoke_at_step(self, step):
        self.seen.append(step)
        return step > self.limit


trial = trained(5)
rule = LargeStep(trial, limit="3")
invoke_rule(rule, end_step=5)
print(rule.seen)
