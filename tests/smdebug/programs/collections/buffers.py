"""Save the buffers of a model."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.BatchNorm1d(4))
loss = torch.nn.MSELoss()
hook = smd.Hook("run", include_collections=["buffers"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
loss(model(torch.ones(3, 4)), torch.zeros(3, 4)).backward()
hook.close()
print(sorted(create_trial("run").tensor_names(regex="running|batches")))
