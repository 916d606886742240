"""Save a tensor of each step, where only every second step is saved."""

import numpy as np
import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=2))
hook.register_module(model)
hook.register_loss(loss)
for step in range(5):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    hook.save_tensor("seen", np.array([float(step)]), collections_to_write="default")
hook.close()
trial = create_trial("run")
if "seen" in trial.tensor_names():
    tensor = trial.tensor("seen")
    print([(step, float(tensor.value(step)[0])) for step in tensor.steps()])
