"""Give collections of the JSON file parameters of their own."""

import json

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

collections = [
    {"CollectionName": "weights", "CollectionParameters": {"save_interval": "3", "reductions": "mean,abs_max,l2_norm"}},
    {"CollectionName": "mine", "CollectionParameters": {"include_regex": "Linear_output,Linear_input"}},
]
with open("hook.json", "w") as file:
    json.dump(
        {"LocalPath": "run", "HookParameters": {"save_interval": "2"}, "CollectionConfigurations": collections}, file
    )
hook = smd.Hook.create_from_json_file("hook.json")
torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook.register_module(model)
hook.register_loss(loss)
for _ in range(7):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(trial.tensor("Linear_weight").steps(), sorted(trial.tensor("Linear_weight").reduction_values(0)))
print(sorted(trial.tensor_names(collection="mine")), trial.tensor("Linear_output_0").steps())
