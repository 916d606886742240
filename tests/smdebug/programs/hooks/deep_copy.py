"""Train a deep copy of a registered model."""

import copy

import torch

from torch_job import ended, hooked, train

model = torch.nn.Sequential(torch.nn.Linear(4, 2))
hook, model, loss = hooked(model=model, include_collections=["weights", "gradients"])
train(model, loss, 1)
train(copy.deepcopy(model), loss, 1)
print(ended(hook).steps())
