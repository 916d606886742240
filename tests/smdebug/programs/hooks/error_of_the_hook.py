"""Go on training after a call of the hook that fails."""

import smdebug.pytorch as smd
import torch

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(2):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    hook.save_tensor("rows", {"no": "array"}, collections_to_write="default")
hook.close()
print("trained")
