"""Invoke a rule at all steps, although its condition is met."""

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
        return True


torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(4):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
rule = Every(trial)
try:
    invoke_rule(rule)
except Exception as error:
    print("raised", type(error).__name__)
print(rule.steps)
