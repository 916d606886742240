"""Write events of TensorBoard in two modes."""

import os

import smdebug.pytorch as smd
import torch

from torch_job import hooked

hook, model, loss = hooked(export_tensorboard=True)
for mode in (smd.modes.TRAIN, smd.modes.EVAL):
    hook.set_mode(mode)
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
found = {os.path.relpath(folder, "run/tensorboard") for folder, _, files in os.walk("run/tensorboard") if files}
print(sorted(found))
