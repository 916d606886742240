"""Read the values of a mode by its steps."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
hook.set_mode(smd.modes.EVAL)
with torch.no_grad():
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
hook.set_mode(smd.modes.TRAIN)
for _ in range(2):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
tensor = trial.tensor("MSELoss_output_0")
print(list(tensor.values(mode=smd.modes.TRAIN)), list(tensor.values(smd.modes.EVAL)), list(tensor.values()))
