"""Give a hook a regex that is none."""

import smdebug.pytorch as smd
import torch

try:
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
    hook = smd.Hook("run", include_regex=["["], save_config=smd.SaveConfig(save_interval=1))
    hook.register_module(model)
    hook.register_loss(loss)
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    print("accepted")
except Exception as error:
    print("refused", type(error).__name__)
