"""Let NaN propagate into reductions."""

import math

import numpy as np
import torch
from smdebug.trials import create_trial

from torch_job import hooked

hook, model, loss = hooked()
output = model(torch.ones(3, 4))
hook.save_tensor("values", np.array([1.0, np.nan, 3.0], np.float32))
loss(output, torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
values = trial.tensor("values")
print({name: math.isnan(values.reduction_value(0, name)) for name in ("min", "max", "mean", "sum", "l2")})
