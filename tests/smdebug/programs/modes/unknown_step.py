"""Translate a step that is unknown."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
hook.set_mode(smd.modes.TRAIN)
for _ in range(2):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
for translate in (lambda: trial.mode(50), lambda: trial.mode_step(50), lambda: trial.global_step(smd.modes.TRAIN, 50)):
    try:
        print(translate())
    except Exception as error:
        print("raised", type(error).__name__)
