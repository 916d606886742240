"""Train a deep copy of a registered model."""

import copy

import smdebug.pytorch as smd
import torch

torch.manual_seed(0)
model, loss = torch.nn.Sequential(torch.nn.Linear(4, 2)), torch.nn.MSELoss()
hook = smd.Hook("run", include_collections=["weights", "gradients"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
copied = copy.deepcopy(model)
loss(copied(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
print(smd.create_trial("run").steps())
