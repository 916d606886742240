"""Train to the same weights with a hook and without."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

results = []
for hooked in (False, True):
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if hooked:
        hook = smd.Hook("run", save_all=True, save_config=smd.SaveConfig(save_interval=1))
        hook.register_module(model)
        hook.register_loss(loss)
    for _ in range(5):
        optimizer.zero_grad()
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
        optimizer.step()
    results.append(model.weight.detach().clone())
hook.close()
print(torch.equal(*results), create_trial("run").steps())
