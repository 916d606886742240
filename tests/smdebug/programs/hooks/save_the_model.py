"""Train what torch.load returns of a registered model."""

import torch
from smdebug.trials import create_trial

from torch_job import hooked, train

model = torch.nn.Sequential(torch.nn.Linear(4, 2))
hook, model, loss = hooked(model=model, include_collections=["weights", "gradients"])
train(model, loss, 1)
torch.save(model, "model.pt")
train(torch.load("model.pt", weights_only=False), loss, 1)
hook.close()
print(create_trial("run").steps())
