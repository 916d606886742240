"""Give a collection a save configuration for one mode; the others are the hook's."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked

hook, model, loss = hooked(save_interval=2, include_collections=["weights"])
hook.get_collection("weights").save_config = {smd.modes.EVAL: smd.SaveConfigMode(save_interval=1)}
for mode in (smd.modes.TRAIN, smd.modes.EVAL):
    hook.set_mode(mode)
    for _ in range(3):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
trial = ended(hook)
weight = trial.tensor("Linear_weight")
print(weight.steps(mode=smd.modes.TRAIN), weight.steps(mode=smd.modes.EVAL))
