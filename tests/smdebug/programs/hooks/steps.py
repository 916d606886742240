"""Read the step of a hook while training."""

import smdebug.pytorch as smd
import torch

from torch_job import hooked

hook, model, loss = hooked()
hook.set_mode(smd.modes.TRAIN)
for _ in range(3):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    print(int(hook.step), hook.mode_steps[smd.modes.TRAIN])
hook.close()
