"""Override forward_hook by one that fails."""

import smdebug.pytorch as smd
import torch


class Failing(smd.Hook):
    def forward_hook(self, module, inputs, outputs):
        raise ValueError("a defect of the script")


torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
hook = Failing("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
for _ in range(2):
    model(torch.ones(3, 4))
print("trained")
