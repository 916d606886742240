"""Read the value of a mode's step."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked

hook, model, loss = hooked(include_regex=["Linear_input"])
for mode, number in ((smd.modes.EVAL, 1.0), (smd.modes.TRAIN, 2.0)):
    hook.set_mode(mode)
    model(torch.full((1, 1, 4), number))
tensor = ended(hook).tensor("Linear_input_0")
print(tensor.value(0, smd.modes.TRAIN).max(), tensor.value(0, mode=smd.modes.EVAL).max(), tensor.value(1).max())
