"""Give an interval of 0."""

import smdebug.pytorch as smd
import torch

try:
    hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=0))
    model = torch.nn.Linear(4, 2)
    hook.register_module(model)
    model(torch.ones(3, 4)).sum().backward()
    hook.close()
    print("accepted")
except Exception as error:
    print("refused", isinstance(error, ValueError))
