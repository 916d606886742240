"""Save the inputs and outputs of a module."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
hook = smd.Hook("run", include_collections=["relu"], save_config=smd.SaveConfig(save_interval=1))
hook.get_collection("relu").add_module_tensors(model[1], inputs=True, outputs=True)
hook.register_module(model)
model(torch.ones(3, 4)).sum().backward()
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names(collection="relu")))
