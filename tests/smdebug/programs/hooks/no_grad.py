"""Save steps that have no backward."""

import torch
from smdebug.trials import create_trial

from torch_job import hooked

hook, model, loss = hooked(include_collections=["weights", "gradients"])
with torch.no_grad():
    for _ in range(2):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
hook.close()
trial = create_trial("run")
print(trial.steps(), sorted(trial.tensor_names()))
