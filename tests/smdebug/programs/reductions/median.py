"""Save the median."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked, train

hook, model, loss = hooked(include_collections=["biases"], reduction_config=smd.ReductionConfig(reductions=["median"]))
with torch.no_grad():
    model.bias[:] = torch.tensor([2.0, 2.0])
train(model, loss, 1)
trial = ended(hook)
print(trial.has_tensor("Linear_bias"))
print(float(trial.tensor("Linear_bias").reduction_value(0, "median")))
