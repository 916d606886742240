"""Ask for a value after the last step of an ended job."""

import smdebug.pytorch as smd
import torch
from smdebug.exceptions import NoMoreData
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(4):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
try:
    trial.tensor("MSELoss_output_0").value(10)
except NoMoreData as error:
    print(type(error).__name__, error.step, error.last_step)
