"""Compute reductions of booleans from the saved value."""

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
hook.save_tensor("mask", np.array([True, False, True, True]))
loss(output, torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
for name in ("max", "sum", "mean"):
    try:
        print(name, float(trial.tensor("mask").reduction_value(0, name)))
    except Exception as error:
        print(name, "raised", type(error).__name__)
