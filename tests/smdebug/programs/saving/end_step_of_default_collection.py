"""Disable the losses by setting end_step on the collection's save_config, as the documents say."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1), include_collections=["weights"])
hook.register_module(model)
hook.register_loss(loss)
hook.get_collection("losses").save_config.end_step = 0
for _ in range(3):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names()))
