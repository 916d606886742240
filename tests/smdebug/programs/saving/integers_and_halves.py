"""Save tensors of several dtypes."""

import numpy as np
import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
output = model(torch.ones(3, 4))
for dtype in ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"):
    hook.save_tensor(dtype, np.ones((2, 2), dtype))
loss(output, torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
for dtype in ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"):
    value = trial.tensor(dtype).value(0)
    print(dtype, value.dtype, value.shape)
