"""Record a tensor as a module's output, by the old name of save_tensor."""

import torch

from torch_job import ended, hooked

hook, model, loss = hooked(include_regex=["extra"])
for _ in range(2):
    output = model(torch.ones(3, 4))
    hook.record_tensor_value("extra", output)
    loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
print([name for name in trial.tensor_names() if "extra" in name])
print(trial.tensor("extra_output_0").steps())
