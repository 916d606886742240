"""Train twice in a process, with a hook and a folder each."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
for folder in ("first", "second"):
    model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
    hook = smd.Hook(folder, save_config=smd.SaveConfig(save_interval=1))
    hook.register_module(model)
    hook.register_loss(loss)
    for _ in range(2):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    hook.close()
    print(folder, create_trial(folder).steps())
