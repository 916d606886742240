"""Compare two trials in a rule."""

import smdebug.pytorch as smd
import torch
from smdebug.rules import Rule, invoke_rule
from smdebug.trials import create_trial


class Same(Rule):
    def __init__(self, base_trial, other_trials):
        super().__init__(base_trial, "", other_trials)

    def invoke_at_step(self, step):
        names = [sorted(trial.tensor_names()) for trial in (self.base_trial, *self.other_trials)]
        return names[0] != names[1]


torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(3):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
rule = Same(trial, [create_trial("run")])
invoke_rule(rule, end_step=3)
print(rule.base_trial is trial, len(rule.other_trials))
