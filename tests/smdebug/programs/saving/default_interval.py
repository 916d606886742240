"""Save step 0 and then every 500th step by default."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run")
hook.register_module(model)
hook.register_loss(loss)
for _ in range(502):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(trial.steps())
