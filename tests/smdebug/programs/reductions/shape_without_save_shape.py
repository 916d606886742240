"""Ask for the shape of a tensor of which only reductions were saved."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

config = smd.ReductionConfig(reductions=["mean"])
torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook(
    "run", include_collections=["weights"], reduction_config=config, save_config=smd.SaveConfig(save_interval=1)
)
hook.register_module(model)
hook.register_loss(loss)
for _ in range(1):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
try:
    print(trial.tensor("Linear_weight").shape(0))
except Exception as error:
    print("raised", type(error).__name__)
