"""Compute the standard deviation and the variance while training."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

model = torch.nn.Linear(2, 2, bias=False)
with torch.no_grad():
    model.weight[:] = torch.tensor([[1.0, -2.0], [3.0, -4.0]])
config = smd.ReductionConfig(reductions=["std", "variance"])
hook = smd.Hook(
    "run", include_collections=["weights"], reduction_config=config, save_config=smd.SaveConfig(save_interval=1)
)
hook.register_module(model)
model(torch.ones(1, 2)).sum().backward()
hook.close()
trial = create_trial("run")
weight = trial.tensor("Linear_weight")
print({name: round(float(weight.reduction_value(0, name)), 5) for name in ("std", "variance")})
