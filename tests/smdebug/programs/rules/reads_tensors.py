"""Read tensors in a rule, also those of earlier steps."""

import smdebug.pytorch as smd
import torch
from smdebug.rules import Rule, invoke_rule
from smdebug.trials import create_trial


class Loss(Rule):
    def __init__(self, base_trial):
        super().__init__(base_trial, action_str="")
        self.seen = []

    def invoke_at_step(self, step):
        tensor = self.base_trial.tensor("MSELoss_output_0")
        self.seen.append((step, tensor.prev_steps(step, 2), tensor.value(step).ndim))
        return False


torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(3):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
rule = Loss(trial)
invoke_rule(rule, end_step=3)
print(rule.seen)
