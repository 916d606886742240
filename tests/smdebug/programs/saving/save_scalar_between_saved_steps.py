"""Save a scalar in each step, of which every third is saved."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=3))
hook.register_module(model)
hook.register_loss(loss)
for i in range(6):
    output = model(torch.ones(3, 4))
    hook.save_scalar("step", i)
    loss(output, torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
tensor = trial.tensor("scalar/step")
print({step: tensor.value(step).item() for step in tensor.steps()})
