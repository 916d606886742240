"""Wait for a step that was not saved."""

import smdebug.pytorch as smd
import torch
from smdebug.exceptions import StepUnavailable
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=2))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(5):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
try:
    trial.wait_for_steps([0, 3])
except StepUnavailable as error:
    print(type(error).__name__, error.step)
