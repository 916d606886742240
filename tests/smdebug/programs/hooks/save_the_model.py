"""Train what torch.load returns of a registered model."""

import torch

from torch_job import ended, hooked, train

model = torch.nn.Sequential(torch.nn.Linear(4, 2))
hook, model, loss = hooked(model=model, include_collections=["weights", "gradients"])
train(model, loss, 1)
torch.save(model, "model.pt")
train(torch.load("model.pt", weights_only=False), loss, 1)
print(ended(hook).steps())
