"""Register two models of the same class."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
models, loss = [torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)], torch.nn.MSELoss()
hook = smd.Hook("run", include_collections=["weights"], save_config=smd.SaveConfig(save_interval=1))
for model in models:
    hook.register_module(model)
hook.register_loss(loss)
for model in models:
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
print(sorted(create_trial("run").tensor_names(collection="weights")))
