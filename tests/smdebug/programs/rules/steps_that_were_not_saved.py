"""Invoke a rule on a run of which every second step was saved."""

import smdebug.pytorch as smd
import torch
from smdebug.rules import Rule, invoke_rule
from smdebug.trials import create_trial


class Every(Rule):
    def __init__(self, base_trial):
        super().__init__(base_trial, action_str="")
        self.steps = []

    def invoke_at_step(self, step):
        self.steps.append(step)
        return False


torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=2))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(6):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
rule = Every(trial)
invoke_rule(rule, start_step=0, end_step=5)
print(rule.steps)
