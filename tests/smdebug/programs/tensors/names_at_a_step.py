"""Query the names at a step, of a mode or globally."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked, train

hook, model, loss = hooked(include_collections=["weights"])
hook.get_collection("weights").save_config = smd.SaveConfig(save_interval=2)
hook.set_mode(smd.modes.EVAL)
with torch.no_grad():
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
hook.set_mode(smd.modes.TRAIN)
train(model, loss, 3)
trial = ended(hook)
print(sorted(trial.tensor_names(step=1, mode=smd.modes.TRAIN)), sorted(trial.tensor_names(step=1)))
print(sorted(trial.tensor_names(mode=smd.modes.EVAL)), trial.tensor_names(mode=smd.modes.PREDICT))
