"""Write events of TensorBoard in two modes."""

import os

import smdebug.pytorch as smd
import torch

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", export_tensorboard=True, save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for mode in (smd.modes.TRAIN, smd.modes.EVAL):
    hook.set_mode(mode)
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
found = {os.path.relpath(folder, "run/tensorboard") for folder, _, files in os.walk("run/tensorboard") if files}
print(sorted(found))
