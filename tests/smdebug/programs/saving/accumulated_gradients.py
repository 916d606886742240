"""Save gradients that accumulate over two backwards."""

import torch

from torch_job import ended, hooked

hook, model, loss = hooked(include_collections=["gradients"])
sums = []
for _ in range(2):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    sums.append(model.bias.grad.numpy().copy())
tensor = ended(hook).tensor("gradient/Linear_bias")
print([round(float((tensor.value(step) / sums[0]).mean()), 3) for step in tensor.steps()])
