"""Save an integer and a tensor as scalars, and read their types."""

import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
output = model(torch.ones(3, 4))
hook.save_scalar("integer", 3)
hook.save_scalar("tensor", torch.tensor(0.5))
loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
tensor = trial.tensor("scalar/tensor").value(0)
print(trial.tensor("scalar/integer").value(0).dtype, tensor.dtype, tensor.shape)
