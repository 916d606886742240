"""Compare two trials in a rule."""

from smdebug.rules import Rule, invoke_rule
from smdebug.trials import create_trial

from torch_job import trained


class Same(Rule):
    def __init__(self, base_trial, other_trials):
        super().__init__(base_trial, "", other_trials)

    def invoke_at_step(self, step):
        names = [sorted(trial.tensor_names()) for trial in (self.base_trial, *self.other_trials)]
        return names[0] != names[1]


trial = trained(3)
rule = Same(trial, [create_trial("run")])
invoke_rule(rule, end_step=3)
print(rule.base_trial is trial, len(rule.other_trials))
