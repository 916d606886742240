"""Save a module that takes a keyword and returns a dictionary."""

import torch

from torch_job import trained


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


trial = trained(1, model=Net(), include_regex=["encoder_(in|out)put"])
print(sorted(trial.tensor_names(regex="encoder")))
