"""Save what matches a regular expression, of a model with buffers."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.BatchNorm2d(2))
hook = smd.Hook("run", include_collections=["custom"], save_config=smd.SaveConfig(save_interval=1))
hook.get_collection("custom").include(".*1.*|.*bias")
hook.register_module(model)
model(torch.ones(2, 1, 2, 2))
hook.close()
ends = ("running_mean", "running_var", "num_batches_tracked")
print([name for name in create_trial("run").tensor_names() if name.endswith(ends)])
