"""Compute reductions of booleans from the saved value."""

import numpy as np
import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
output = model(torch.ones(3, 4))
hook.save_tensor("mask", np.array([True, False, True, True]))
loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
for name in ("max", "sum", "mean"):
    try:
        print(name, float(trial.tensor("mask").reduction_value(0, name)))
    except Exception as error:
        print(name, "raised", type(error).__name__)
