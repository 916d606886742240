"""Ask for a tensor at a step at which it was not saved."""

import smdebug.pytorch as smd
import torch
from smdebug.exceptions import TensorUnavailableForStep
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", include_collections=["weights"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
hook.get_collection("weights").save_config = smd.SaveConfig(save_interval=2)
for _ in range(4):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
try:
    trial.tensor("Linear_weight").value(1)
except TensorUnavailableForStep as error:
    print(type(error).__name__, error.tname, error.step, error.mode.name)
