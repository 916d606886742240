"""Read values without an axis, and without elements."""

import numpy as np
import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
output = model(torch.ones(3, 4))
hook.save_tensor("scalar", np.array(2.5, np.float32))
hook.save_tensor("empty", np.zeros((0, 3), np.float32))
loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
for name in ("scalar", "empty"):
    print(name, trial.tensor(name).value(0).shape)
