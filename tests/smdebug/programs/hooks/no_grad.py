"""Save steps that have no backward."""

import torch

from torch_job import ended, hooked

hook, model, loss = hooked(include_collections=["weights", "gradients"])
with torch.no_grad():
    for _ in range(2):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
trial = ended(hook)
print(trial.steps(), sorted(trial.tensor_names()))
