"""Compute the ratio of updates to weights, from the values of two steps."""

import numpy as np
import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
torch.nn.init.ones_(model.weight)
torch.nn.init.zeros_(model.bias)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hook = smd.Hook("run", include_collections=["weights"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
for _ in range(4):
    optimizer.zero_grad()
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    optimizer.step()
hook.close()
trial = create_trial("run")
weight = trial.tensor("Linear_weight")
for before, after in zip(weight.steps(), weight.steps()[1:], strict=False):
    update = weight.value(after) - weight.value(before)
    print(before, round(float(np.abs(update).mean() / np.abs(weight.value(before)).mean()), 4))
