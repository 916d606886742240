"""Compute reductions of integers from the saved value."""

import numpy as np
import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
output = model(torch.ones(3, 4))
hook.save_tensor("counts", np.array([1, 2, 6], np.int64))
loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
print({name: float(trial.tensor("counts").reduction_value(0, name)) for name in ("min", "max", "mean", "sum", "l1")})
