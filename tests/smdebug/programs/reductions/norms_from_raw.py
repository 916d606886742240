"""Compute norms of a matrix from its saved value."""

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
hook.save_tensor("matrix", np.array([[1.0, -2.0], [3.0, -4.0]], np.float32))
loss(output, torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print({name: round(float(trial.tensor("matrix").reduction_value(0, name)), 5) for name in ("l1", "l2")})
