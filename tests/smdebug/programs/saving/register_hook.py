"""Register a model by the older name, register_hook."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

model = torch.nn.Linear(4, 2)
hook = smd.Hook("run", include_collections=["biases"], save_config=smd.SaveConfig(save_interval=1))
hook.register_hook(model)
model(torch.ones(3, 4)).sum().backward()
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names()))
