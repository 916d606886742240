"""Log a warning of a regex that matches no tensor of the first saved step."""

import logging

import smdebug.pytorch as smd
import torch


class Counter(logging.Handler):
    count = 0

    def emit(self, record):
        self.count += "Lineer_weight" in record.getMessage()


counter = Counter()
logging.getLogger().addHandler(counter)
torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", include_regex=["Lineer_weight"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(3):
    loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
print(counter.count)
