"""Save gradients that accumulate over two backwards."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", include_collections=["gradients"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
sums = []
for _ in range(2):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    sums.append(model.bias.grad.numpy().copy())
hook.close()
tensor = create_trial("run").tensor("gradient/Linear_bias")
print([round(float((tensor.value(step) / sums[0]).mean()), 3) for step in tensor.steps()])
