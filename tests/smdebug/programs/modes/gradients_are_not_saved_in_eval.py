"""Save gradients only outside of EVAL and PREDICT."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked

hook, model, loss = hooked(include_collections=["gradients", "weights"])
for mode in (smd.modes.TRAIN, smd.modes.EVAL, smd.modes.PREDICT):
    hook.set_mode(mode)
    for _ in range(2):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
trial = ended(hook)
gradient, weight = trial.tensor("gradient/Linear_weight"), trial.tensor("Linear_weight")
for mode in (smd.modes.TRAIN, smd.modes.EVAL, smd.modes.PREDICT):
    print(mode.name, gradient.steps(mode=mode), weight.steps(mode=mode))
