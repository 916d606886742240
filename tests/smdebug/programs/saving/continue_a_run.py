"""Continue the run of a process that has ended."""

import os

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial


def train(**options):
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
    hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1), **options)
    hook.register_module(model)
    hook.register_loss(loss)
    for _ in range(2):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    hook.close()


if not (child := os.fork()):
    train()
    os._exit(0)
os.waitpid(child, 0)
try:
    train(resume=True)
except Exception:
    print("refused")
print(create_trial("run").steps())
