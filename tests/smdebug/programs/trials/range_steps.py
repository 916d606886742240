"""Restrict a trial to a range of steps."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(10):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
for limits in ((3, 6), (None, 3), (7, None), None):
    print(limits, create_trial("run", range_steps=limits).steps())
