"""Go on when a rule asks for a tensor that a step does not have."""

import smdebug.pytorch as smd
import torch
from smdebug.rules import Rule, invoke_rule
from smdebug.trials import create_trial


class Weights(Rule):
    def __init__(self, base_trial):
        super().__init__(base_trial, action_str="")
        self.seen = []

    def invoke_at_step(self, step):
        self.base_trial.tensor("Linear_weight").value(step)
        self.seen.append(step)
        return False


torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", include_collections=["weights"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
hook.get_collection("weights").save_config = smd.SaveConfig(save_interval=2)
for _ in range(5):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
rule = Weights(trial)
invoke_rule(rule, end_step=5)
print(rule.seen)
