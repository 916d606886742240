"""Find the JSON file by an environment variable."""

import json
import os

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

with open("hook.json", "w") as file:
    json.dump({"LocalPath": "run", "HookParameters": {"save_steps": "1,3", "save_interval": "50"}}, file)
os.environ["SMDEBUG_CONFIG_FILE_PATH"] = "hook.json"
hook = smd.Hook.create_from_json_file()
torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook.register_module(model)
hook.register_loss(loss)
for _ in range(5):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(trial.steps())
