"""Save a scalar as a SageMaker metric, in the collection `sm_metrics`."""

import torch
from smdebug.trials import create_trial

from torch_job import hooked

hook, model, loss = hooked()
output = model(torch.ones(3, 4))
hook.save_scalar("accuracy", 0.5, sm_metric=True)
loss(output, torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(trial.tensor_names(collection="sm_metrics"))
