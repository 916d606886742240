"""Read the values of all steps."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", include_regex=["Linear_input"], save_config=smd.SaveConfig(save_interval=2))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(5):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
values = trial.tensor("Linear_input_0").values()
print(type(values).__name__, {step: value.shape for step, value in values.items()})
