"""Save a scalar in each step, of which every third is saved."""

import torch

from torch_job import ended, hooked

hook, model, loss = hooked(save_interval=3)
for i in range(6):
    output = model(torch.ones(3, 4))
    hook.save_scalar("step", i)
    loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
tensor = trial.tensor("scalar/step")
print({step: tensor.value(step).item() for step in tensor.steps()})
