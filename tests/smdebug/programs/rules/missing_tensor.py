"""Go on when a rule asks for a tensor that a step does not have."""

import smdebug.pytorch as smd
from smdebug.rules import Rule, invoke_rule

from torch_job import ended, hooked, train


class Weights(Rule):
    def __init__(self, base_trial):
        super().__init__(base_trial, action_str="")
        self.seen = []

    def invoke_at_step(self, step):
        self.base_trial.tensor("Linear_weight").value(step)
        self.seen.append(step)
        return False


hook, model, loss = hooked(include_collections=["weights"])
hook.get_collection("weights").save_config = smd.SaveConfig(save_interval=2)
train(model, loss, 5)
trial = ended(hook)
rule = Weights(trial)
invoke_rule(rule, end_step=5)
print(rule.seen)
