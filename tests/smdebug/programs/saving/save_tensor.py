"""Save an array by hand."""

import numpy as np
import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
hook.set_mode(smd.modes.TRAIN)
for i in range(2):
    output = model(torch.ones(3, 4))
    hook.save_tensor("extra", np.full((2, 3), i), collections_to_write="default")
    loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
print(trial.tensor("extra").steps())
print(trial.tensor("extra").value(0))
print("extra" in trial.tensor_names(collection="default"))
