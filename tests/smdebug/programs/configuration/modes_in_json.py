"""Prefix keys of the JSON file with a mode."""

import json

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

with open("hook.json", "w") as file:
    parameters = {"save_interval": "4", "train.save_interval": "2", "eval.save_steps": "1"}
    json.dump({"LocalPath": "run", "HookParameters": parameters}, file)
hook = smd.Hook.create_from_json_file("hook.json")
torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook.register_module(model)
hook.register_loss(loss)
for mode in (smd.modes.TRAIN, smd.modes.EVAL, smd.modes.GLOBAL):
    hook.set_mode(mode)
    for _ in range(5):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
tensor = trial.tensor("MSELoss_output_0")
print([tensor.steps(mode=mode) for mode in (smd.modes.TRAIN, smd.modes.EVAL)])
