"""Collect the losses of training and evaluation."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
for _ in range(2):
    hook.set_mode(smd.modes.TRAIN)
    for _ in range(2):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    hook.set_mode(smd.modes.EVAL)
    for _ in range(1):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
trial = ended(hook)
for mode in (smd.modes.TRAIN, smd.modes.EVAL):
    for name in trial.tensor_names(collection="losses"):
        tensor = trial.tensor(name)
        print(mode.name, name, [(step, tensor.value(step, mode=mode).ndim) for step in tensor.steps(mode=mode)])
