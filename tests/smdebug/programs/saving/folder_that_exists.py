"""Save into a folder that exists and holds no run."""

import os

import torch
from smdebug.trials import create_trial

from torch_job import hooked

os.makedirs("run")
hook, model, loss = hooked()
loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
print(create_trial("run").steps())
