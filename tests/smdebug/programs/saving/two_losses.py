"""Register two losses of different classes."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

model = torch.nn.Linear(4, 2)
first, second = torch.nn.MSELoss(), torch.nn.L1Loss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(first)
hook.register_loss(second)
for _ in range(2):
    output = model(torch.ones(3, 4))
    (first(output, torch.zeros(3, 2)) + second(output, torch.zeros(3, 2))).backward()
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names(collection="losses")))
