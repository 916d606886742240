"""Save an array by hand into two collections."""

import numpy as np
import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
hook.set_mode(smd.modes.TRAIN)
output = model(torch.ones(3, 4))
hook.save_tensor("extra", np.ones(3), collections_to_write=["first", "second"])
loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
print(trial.tensor_names(collection="first"), trial.tensor_names(collection="second"))
