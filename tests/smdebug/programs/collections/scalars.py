"""List `scalars` in include_collections, as published scripts do."""

import torch

from torch_job import ended, hooked

hook, model, loss = hooked(include_collections=["scalars"])
output = model(torch.ones(3, 4))
hook.save_scalar("accuracy", 0.5)
loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
print(sorted(trial.tensor_names()))
