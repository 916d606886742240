"""Name the tensors of nested modules by their path."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
        self.head = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.body(x))


model = Net()
hook = smd.Hook("run", save_all=True, save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
for _ in range(2):
    model(torch.ones(3, 4)).sum().backward()
hook.close()
trial = create_trial("run")
for name in sorted(trial.tensor_names()):
    print(name, trial.tensor(name).steps(), trial.tensor(name).value(trial.tensor(name).steps()[0]).shape)
