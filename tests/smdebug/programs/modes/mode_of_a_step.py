"""Translate a global step into its mode and mode step."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked, train

hook, model, loss = hooked()
hook.set_mode(smd.modes.TRAIN)
train(model, loss, 2)
hook.set_mode(smd.modes.PREDICT)
with torch.no_grad():
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
trial = ended(hook)
print([(step, trial.mode(step).name, trial.mode_step(step)) for step in trial.steps()])
