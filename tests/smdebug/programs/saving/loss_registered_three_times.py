"""Register a loss three times."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
for _ in range(3):
    hook.register_loss(loss)
loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
print(sorted(create_trial("run").tensor_names(collection="losses")))
