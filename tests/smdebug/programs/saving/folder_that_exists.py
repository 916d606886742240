"""Save into a folder that exists and holds no run."""

import os

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

os.makedirs("run")
torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
print(create_trial("run").steps())
