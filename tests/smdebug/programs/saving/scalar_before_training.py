"""Save a scalar before the mode is set, and count the steps."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(2, 3), torch.nn.CrossEntropyLoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
hook.save_scalar("epochs", 2)
hook.set_mode(smd.modes.TRAIN)
for _ in range(3):
    loss(model(torch.ones(2, 2)), torch.tensor([0, 1])).backward()
hook.close()
trial = create_trial("run")
print(trial.steps(), trial.steps(mode=smd.modes.TRAIN))
print(trial.tensor("CrossEntropyLoss_output_0").steps())
