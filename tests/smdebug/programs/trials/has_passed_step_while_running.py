"""Ask whether a step was passed while the job runs."""

import smdebug.pytorch as smd
import torch
from smdebug.core.tensor import StepState
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=2))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(5):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
trial = create_trial("run")
print(trial.has_passed_step(0) == StepState.AVAILABLE, trial.has_passed_step(1).name, trial.has_passed_step(50).name)
hook.close()
