"""Count two forwards as one step."""

import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
for _ in range(2):
    with hook.step():
        for _ in range(2):
            loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
print(ended(hook).steps())
