"""Write a rule, and invoke it until its condition is met."""

import smdebug.pytorch as smd
import torch
from smdebug.exceptions import RuleEvaluationConditionMet
from smdebug.rules import Rule, invoke_rule
from smdebug.trials import create_trial


class LargeStep(Rule):
    def __init__(self, base_trial, limit="2"):
        super().__init__(base_trial, action_str="")
        self.limit = int(limit)

    def invoke_at_step(self, step):
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
try:
    invoke_rule(LargeStep(trial), raise_eval_cond=True)
except RuleEvaluationConditionMet as error:
    print(type(error).__name__, error.rule_name, error.step)
