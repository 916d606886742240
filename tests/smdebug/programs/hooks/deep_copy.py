"""Train a deep copy of a registered model."""

import copy

import torch
from smdebug.trials import create_trial

from torch_job import hooked, train

model = torch.nn.Sequential(torch.nn.Linear(4, 2))
hook, model, loss = hooked(model=model, include_collections=["weights", "gradients"])
train(model, loss, 1)
train(copy.deepcopy(model), loss, 1)
hook.close()
print(create_trial("run").steps())
