"""Save an array by hand into two collections."""

import numpy as np
import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

from torch_job import hooked

hook, model, loss = hooked()
hook.set_mode(smd.modes.TRAIN)
output = model(torch.ones(3, 4))
hook.save_tensor("extra", np.ones(3), collections_to_write=["first", "second"])
loss(output, torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(trial.tensor_names(collection="first"), trial.tensor_names(collection="second"))
