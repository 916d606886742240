"""Ask whether a step of a mode was passed."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
hook.set_mode(smd.modes.TRAIN)
for _ in range(3):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.set_mode(smd.modes.EVAL)
with torch.no_grad():
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
hook.close()
trial = create_trial("run")
print([trial.has_passed_step(step, mode=smd.modes.TRAIN).name for step in range(4)])
print([trial.has_passed_step(step, smd.modes.EVAL).name for step in range(3)])
