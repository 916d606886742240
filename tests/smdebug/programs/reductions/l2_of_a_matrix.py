"""Compute the L2 norm of a matrix while training."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

model = torch.nn.Linear(2, 2, bias=False)
with torch.no_grad():
    model.weight[:] = torch.tensor([[1.0, -2.0], [3.0, -4.0]])
hook = smd.Hook(
    "run",
    include_collections=["weights"],
    reduction_config=smd.ReductionConfig(norms=["l1", "l2"], abs_norms=["l2"]),
    save_config=smd.SaveConfig(save_interval=1),
)
hook.register_module(model)
model(torch.ones(1, 2)).sum().backward()
hook.close()
trial = create_trial("run")
weight = trial.tensor("Linear_weight")
print(round(float(weight.reduction_value(0, "l2")), 5), round(float(weight.reduction_value(0, "l2", abs=True)), 5))
