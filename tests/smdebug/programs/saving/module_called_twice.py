"""Call a module twice in a step: its outputs are numbered on."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial


class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(self.inner(x))


model = Twice()
hook = smd.Hook("run", include_regex=["inner_output"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
for _ in range(2):
    model(torch.ones(3, 4)).sum().backward()
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names()))
print(trial.tensor("inner_output_1").steps())
