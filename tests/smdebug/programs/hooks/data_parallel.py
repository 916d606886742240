"""Register a model in nn.DataParallel."""

import torch

from torch_job import trained

model = torch.nn.DataParallel(torch.nn.Linear(4, 2))
print(sorted(trained(2, model=model, include_collections=["weights", "gradients"]).tensor_names()))
