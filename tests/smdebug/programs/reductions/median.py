"""Save the median."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook(
    "run",
    include_collections=["biases"],
    reduction_config=smd.ReductionConfig(reductions=["median"]),
    save_config=smd.SaveConfig(save_interval=1),
)
hook.register_module(model)
hook.register_loss(loss)
with torch.no_grad():
    model.bias[:] = torch.tensor([2.0, 2.0])
for _ in range(1):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(trial.has_tensor("Linear_bias"))
print(float(trial.tensor("Linear_bias").reduction_value(0, "median")))
