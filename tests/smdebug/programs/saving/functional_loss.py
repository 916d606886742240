"""Save a loss that no module computes."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

model = torch.nn.Linear(4, 2)
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
for _ in range(2):
    loss = torch.nn.functional.mse_loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
    hook.record_tensor_value("mse_loss", loss)
    loss.backward()
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names()), sorted(trial.tensor_names(collection="losses")))
