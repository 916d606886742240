"""Plot-ready norms of all gradients, step by step."""

import numpy as np
import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", include_collections=["gradients"], save_config=smd.SaveConfig(save_interval=2))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(5):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
for name in sorted(trial.tensor_names(collection="gradients")):
    tensor = trial.tensor(name)
    print(name, [round(float(np.linalg.norm(tensor.value(step))), 3) > 0 for step in tensor.steps()])
