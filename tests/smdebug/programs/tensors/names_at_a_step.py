"""Query the names at a step, of a mode or globally."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", include_collections=["weights"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
hook.get_collection("weights").save_config = smd.SaveConfig(save_interval=2)
hook.set_mode(smd.modes.EVAL)
with torch.no_grad():
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
hook.set_mode(smd.modes.TRAIN)
for _ in range(3):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names(step=1, mode=smd.modes.TRAIN)), sorted(trial.tensor_names(step=1)))
print(sorted(trial.tensor_names(mode=smd.modes.EVAL)), trial.tensor_names(mode=smd.modes.PREDICT))
