"""Ignore keys that are unknown."""

import json

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

with open("hook.json", "w") as file:
    json.dump(
        {"LocalPath": "run", "S3Path": "x", "HookParameters": {"save_interval": "1", "save_intervall": "7"}}, file
    )
hook = smd.Hook.create_from_json_file("hook.json")
torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook.register_module(model)
hook.register_loss(loss)
for _ in range(2):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(trial.steps())
