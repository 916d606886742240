"""Compute reductions of known values while training."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

model = torch.nn.Linear(2, 2, bias=False)
with torch.no_grad():
    model.weight[:] = torch.tensor([[1.0, -2.0], [3.0, -4.0]])
config = smd.ReductionConfig(
    reductions=["min", "max", "mean", "sum", "prod"], abs_reductions=["min", "max", "mean", "sum"], norms=["l1"]
)
hook = smd.Hook(
    "run", include_collections=["weights"], reduction_config=config, save_config=smd.SaveConfig(save_interval=1)
)
hook.register_module(model)
model(torch.ones(1, 2)).sum().backward()
hook.close()
trial = create_trial("run")
weight = trial.tensor("Linear_weight")
for name in ("min", "max", "mean", "sum", "prod", "l1"):
    print(name, float(weight.reduction_value(0, name)))
for name in ("min", "max", "mean", "sum"):
    print("abs", name, float(weight.reduction_value(0, name, abs=True)))
