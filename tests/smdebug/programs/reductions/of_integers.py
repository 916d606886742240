"""Compute reductions of integers from the saved value."""

import numpy as np
import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
output = model(torch.ones(3, 4))
hook.save_tensor("counts", np.array([1, 2, 6], np.int64))
loss(output, torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print({name: float(trial.tensor("counts").reduction_value(0, name)) for name in ("min", "max", "mean", "sum", "l1")})
