"""Compute reductions of booleans from the saved value."""

import numpy as np
import torch
from smdebug.trials import create_trial

from torch_job import hooked

hook, model, loss = hooked()
output = model(torch.ones(3, 4))
hook.save_tensor("mask", np.array([True, False, True, True]))
loss(output, torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
for name in ("max", "sum", "mean"):
    try:
        print(name, float(trial.tensor("mask").reduction_value(0, name)))
    except Exception as error:
        print(name, "raised", type(error).__name__)
