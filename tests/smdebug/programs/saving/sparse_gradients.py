"""Save the gradient of an embedding with sparse gradients."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(5, 2, sparse=True))
hook = smd.Hook("run", include_collections=["gradients"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
for _ in range(2):
    model(torch.tensor([1, 3])).sum().backward()
hook.close()
trial = create_trial("run")
for name in trial.tensor_names(collection="gradients"):
    print(name, trial.tensor(name).value(0).shape)
