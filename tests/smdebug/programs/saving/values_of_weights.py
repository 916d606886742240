"""Save the weights as they are before the step's update."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

model = torch.nn.Linear(2, 1, bias=False)
torch.nn.init.ones_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
hook = smd.Hook("run", include_collections=["weights", "gradients"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
hook.close()
trial = create_trial("run")
print(*(trial.tensor("Linear_weight").value(step).tolist() for step in trial.steps()))
print(*(trial.tensor("gradient/Linear_weight").value(step).tolist() for step in trial.steps()))
