"""List the steps of a tensor, also for a mode."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked, train

hook, model, loss = hooked(save_interval=2)
hook.set_mode(smd.modes.TRAIN)
train(model, loss, 5)
hook.set_mode(smd.modes.EVAL)
with torch.no_grad():
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
trial = ended(hook)
tensor = trial.tensor("MSELoss_output_0")
print(tensor.steps(), tensor.steps(mode=smd.modes.TRAIN), tensor.steps(mode=smd.modes.EVAL))
print(tensor.steps(mode=smd.modes.PREDICT), tensor.steps(show_incomplete_steps=True))
