"""Read the values of a mode by its steps."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked, train

hook, model, loss = hooked()
hook.set_mode(smd.modes.EVAL)
with torch.no_grad():
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
hook.set_mode(smd.modes.TRAIN)
train(model, loss, 2)
trial = ended(hook)
tensor = trial.tensor("MSELoss_output_0")
print(list(tensor.values(mode=smd.modes.TRAIN)), list(tensor.values(smd.modes.EVAL)), list(tensor.values()))
