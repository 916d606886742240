"""Let NaN propagate into reductions."""

import math

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
hook.save_tensor("values", np.array([1.0, np.nan, 3.0], np.float32))
loss(output, torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
values = trial.tensor("values")
print({name: math.isnan(values.reduction_value(0, name)) for name in ("min", "max", "mean", "sum", "l2")})
