"""Read the step of a hook while training."""

import smdebug.pytorch as smd
import torch

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
hook.set_mode(smd.modes.TRAIN)
for _ in range(3):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    print(int(hook.step), hook.mode_steps[smd.modes.TRAIN])
hook.close()
