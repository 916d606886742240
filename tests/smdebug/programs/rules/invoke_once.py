"""Invoke a rule at one step."""

import smdebug.pytorch as smd
import torch
from smdebug.exceptions import RuleEvaluationConditionMet
from smdebug.rules import Rule
from smdebug.trials import create_trial


class Met(Rule):
    def invoke_at_step(self, step):
        return step == 1


torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(3):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
rule = Met(trial, "")
for step in range(3):
    try:
        rule.invoke(step)
        print(step, "not met")
    except RuleEvaluationConditionMet:
        print(step, "met")
