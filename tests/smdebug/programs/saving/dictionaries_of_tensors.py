"""Save a module that takes a keyword and returns a dictionary."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()

    def forward(self, x):
        return self.encoder(features=x)["logits"]


class Encoder(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 2)

    def forward(self, features):
        return {"logits": super().forward(features)}


torch.manual_seed(0)
model, loss = Net(), torch.nn.MSELoss()
hook = smd.Hook("run", include_regex=["encoder_(in|out)put"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
print(sorted(create_trial("run").tensor_names(regex="encoder")))
