"""Open a run by the class LocalTrial."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import LocalTrial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=2))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(3):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = LocalTrial("job", "run")
print(trial.name, trial.steps())
