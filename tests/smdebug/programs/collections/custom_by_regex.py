"""Define a collection by a regex."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", include_collections=["mine"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
hook.get_collection("mine").include("Linear_.*put")
for _ in range(1):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names(collection="mine")))
print(trial.collection("mine").include_regex)
