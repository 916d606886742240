"""Save into a folder that exists and holds no run."""

import os

import torch

from torch_job import ended, hooked

os.makedirs("run")
hook, model, loss = hooked()
loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
print(ended(hook).steps())
