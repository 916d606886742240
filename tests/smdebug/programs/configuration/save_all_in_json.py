"""Save all tensors by the JSON file."""

import json

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

with open("hook.json", "w") as file:
    json.dump({"LocalPath": "run", "HookParameters": {"save_all": "true", "save_interval": "1"}}, file)
hook = smd.Hook.create_from_json_file("hook.json")
torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook.register_module(model)
hook.register_loss(loss)
for _ in range(1):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names()))
