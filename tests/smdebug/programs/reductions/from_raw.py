"""Compute reductions from the saved value when they are asked for."""

import numpy as np
import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
output = model(torch.ones(3, 4))
hook.save_tensor("vector", np.array([1.0, -2.0, 4.0, -5.0], np.float32))
loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
vector = trial.tensor("vector")
for name in ("min", "max", "mean", "sum", "prod", "std", "variance", "l1", "l2"):
    print(name, *(round(float(vector.reduction_value(0, name, abs=of)), 4) for of in (False, True)))
