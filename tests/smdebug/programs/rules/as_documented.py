"""Write a rule as the documents show it, without an action."""

import smdebug.pytorch as smd
import torch
from smdebug.rules import Rule, invoke_rule
from smdebug.trials import create_trial


class LargeStep(Rule):
    def __init__(self, base_trial, limit="2"):
        super().__init__(base_trial, other_trials=None)
        self.limit = int(limit)
        self.seen = []

    def invoke_at_step(self, step):
        self.seen.append(step)
        return step > self.limit


torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(5):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
rule = LargeStep(trial, limit="3")
invoke_rule(rule, end_step=5)
print(rule.seen)
