"""Ask whether a step of a mode was passed."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked, train

hook, model, loss = hooked()
hook.set_mode(smd.modes.TRAIN)
train(model, loss, 3)
hook.set_mode(smd.modes.EVAL)
with torch.no_grad():
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
trial = ended(hook)
print([trial.has_passed_step(step, mode=smd.modes.TRAIN).name for step in range(4)])
print([trial.has_passed_step(step, smd.modes.EVAL).name for step in range(3)])
