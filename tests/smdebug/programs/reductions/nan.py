"""Let NaN propagate into reductions."""

import math

import numpy as np
import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
output = model(torch.ones(3, 4))
hook.save_tensor("values", np.array([1.0, np.nan, 3.0], np.float32))
loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
values = trial.tensor("values")
print({name: math.isnan(values.reduction_value(0, name)) for name in ("min", "max", "mean", "sum", "l2")})
