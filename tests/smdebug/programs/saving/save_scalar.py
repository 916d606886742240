"""Save a scalar, and find it as `scalar/<name>`."""

import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
for i in range(3):
    output = model(torch.ones(3, 4))
    hook.save_scalar("accuracy", i / 4)
    loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
print([name for name in trial.tensor_names() if "accuracy" in name])
print(trial.has_tensor("scalar/accuracy"))
print([value.item() for value in trial.tensor("scalar/accuracy").values().values()])
