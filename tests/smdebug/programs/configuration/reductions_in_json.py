"""Name norms in the JSON file as the documents do."""

import json

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

with open("hook.json", "w") as file:
    parameters = {"reductions": "min,l1,abs_l2", "save_interval": "1"}
    json.dump(
        {"LocalPath": "run", "HookParameters": parameters, "CollectionConfigurations": [{"CollectionName": "weights"}]},
        file,
    )
try:
    hook = smd.Hook.create_from_json_file("hook.json")
except Exception as error:
    print("refused", isinstance(error, ValueError))
    raise SystemExit(0) from error
torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook.register_module(model)
hook.register_loss(loss)
for _ in range(1):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor("Linear_weight").reduction_values(0)))
