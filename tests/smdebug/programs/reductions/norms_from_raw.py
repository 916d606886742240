"""Compute norms of a matrix from its saved value."""

import numpy as np
import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
output = model(torch.ones(3, 4))
hook.save_tensor("matrix", np.array([[1.0, -2.0], [3.0, -4.0]], np.float32))
loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
print({name: round(float(trial.tensor("matrix").reduction_value(0, name)), 5) for name in ("l1", "l2")})
