"""Save a scalar, and find it as `scalar/<name>`."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for i in range(3):
    output = model(torch.ones(3, 4))
    hook.save_scalar("accuracy", i / 4)
    loss(output, torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print([name for name in trial.tensor_names() if "accuracy" in name])
print(trial.has_tensor("scalar/accuracy"))
print([value.item() for value in trial.tensor("scalar/accuracy").values().values()])
