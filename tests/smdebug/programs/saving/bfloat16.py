"""Save the weights of a model in bfloat16."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2).bfloat16(), torch.nn.MSELoss()
hook = smd.Hook("run", include_collections=["weights"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(2):
    loss(model(torch.ones(3, 4).bfloat16()), torch.zeros(3, 2).bfloat16()).backward()
hook.close()
print(create_trial("run").tensor("Linear_weight").value(0).shape)
