"""Read values without an axis, and without elements."""

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
hook.save_tensor("scalar", np.array(2.5, np.float32))
hook.save_tensor("empty", np.zeros((0, 3), np.float32))
loss(output, torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
for name in ("scalar", "empty"):
    print(name, trial.tensor(name).value(0).shape)
