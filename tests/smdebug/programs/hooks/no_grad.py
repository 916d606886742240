"""Save steps that have no backward."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", include_collections=["weights", "gradients"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
with torch.no_grad():
    for _ in range(2):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
hook.close()
trial = create_trial("run")
print(trial.steps(), sorted(trial.tensor_names()))
