"""Count NaN, infinite and zero values."""

import numpy as np
import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.save_tensor("x", np.array([np.nan, np.inf, 0.0, 0.0]), collections_to_write="default")
loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
tensor = ended(hook).tensor("x")
step = tensor.steps()[0]
print([int(tensor.reduction_value(step, name)) for name in ("nan_count", "inf_count", "zero_count")])
