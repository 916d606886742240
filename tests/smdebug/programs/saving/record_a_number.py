"""Record the loss of a step as a number."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
model(torch.ones(3, 4))
hook.record_tensor_value("loss", 0.5)
hook.close()
print(create_trial("run").tensor_names())
