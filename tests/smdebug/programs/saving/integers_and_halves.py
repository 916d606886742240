"""Save tensors of several dtypes."""

import numpy as np
import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
output = model(torch.ones(3, 4))
for dtype in ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"):
    hook.save_tensor(dtype, np.ones((2, 2), dtype))
loss(output, torch.zeros(3, 2)).backward()
trial = ended(hook)
for dtype in ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"):
    value = trial.tensor(dtype).value(0)
    print(dtype, value.dtype, value.shape)
