"""Assign `save_all` to a hook."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1), include_collections=["weights"])
hook.save_all = True
hook.register_module(model)
hook.register_loss(loss)
for _ in range(4):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(trial.tensor_names(), trial.steps(), sorted(trial.tensor("Linear_weight").reduction_values(0)))
