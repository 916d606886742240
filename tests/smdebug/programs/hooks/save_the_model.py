"""Train what torch.load returns of a registered model."""

import smdebug.pytorch as smd
import torch

torch.manual_seed(0)
model, loss = torch.nn.Sequential(torch.nn.Linear(4, 2)), torch.nn.MSELoss()
hook = smd.Hook("run", include_collections=["weights", "gradients"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
torch.save(model, "model.pt")
loaded = torch.load("model.pt", weights_only=False)
loss(loaded(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
print(smd.create_trial("run").steps())
