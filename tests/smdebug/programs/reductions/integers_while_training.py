"""Save the mean of an integer tensor while training."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked

hook, model, loss = hooked(include_regex=["counts"], reduction_config=smd.ReductionConfig(reductions=["mean", "max"]))
output = model(torch.ones(3, 4))
hook.record_tensor_value("counts", torch.tensor([1, 2, 6]))
loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
counts = trial.tensor("counts_output_0")
print({name: float(counts.reduction_value(0, name)) for name in ("mean", "max")})
