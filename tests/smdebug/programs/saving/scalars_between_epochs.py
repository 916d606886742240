"""Save a scalar after each epoch, and read the weight at each step of training."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(2, 3), torch.nn.CrossEntropyLoss()
hook = smd.Hook("run", include_collections=["weights"], save_config=smd.SaveConfig(save_interval=2))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(2):
    hook.set_mode(smd.modes.TRAIN)
    for _ in range(4):
        loss(model(torch.ones(2, 2)), torch.tensor([0, 1])).backward()
    hook.save_scalar("loss", 0.5, sm_metric=True)
    hook.set_mode(smd.modes.EVAL)
    for _ in range(3):
        loss(model(torch.ones(2, 2)), torch.tensor([0, 1]))
    hook.save_scalar("accuracy", 0.5, sm_metric=True)
hook.close()
trial = create_trial("run")
print([(s, trial.tensor("Linear_weight").value(s, mode=smd.modes.TRAIN).shape) for s in trial.steps(smd.modes.TRAIN)])
