"""Save the median."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked(include_collections=["biases"], reduction_config=smd.ReductionConfig(reductions=["median"]))
with torch.no_grad():
    model.bias[:] = torch.tensor([2.0, 2.0])
train(model, loss, 1)
hook.close()
trial = create_trial("run")
print(trial.has_tensor("Linear_bias"))
print(float(trial.tensor("Linear_bias").reduction_value(0, "median")))
