"""Save a scalar as a SageMaker metric, in the collection `sm_metrics`."""

import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
output = model(torch.ones(3, 4))
hook.save_scalar("accuracy", 0.5, sm_metric=True)
loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
print(trial.tensor_names(collection="sm_metrics"))
