"""Read the shape of a tensor that was saved raw."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", include_regex=["Linear_input"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(2):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
tensor = trial.tensor("Linear_input_0")
print(tensor.shape(0), tensor.shapes(), type(tensor.shape(1)).__name__)
