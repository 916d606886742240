"""Save a tensor of each step, where only every second step is saved."""

import numpy as np
import torch

from torch_job import ended, hooked

hook, model, loss = hooked(save_interval=2)
for step in range(5):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    hook.save_tensor("seen", np.array([float(step)]), collections_to_write="default")
trial = ended(hook)
if "seen" in trial.tensor_names():
    tensor = trial.tensor("seen")
    print([(step, float(tensor.value(step)[0])) for step in tensor.steps()])
