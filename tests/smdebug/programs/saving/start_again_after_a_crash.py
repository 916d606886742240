"""Start a job again that was killed, with the same folder."""

import os

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial


def train(crashes):
    model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
    hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
    hook.register_module(model)
    hook.register_loss(loss)
    for _ in range(4):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    if crashes:
        os._exit(1)
    hook.close()


if not (child := os.fork()):
    train(crashes=True)
os.waitpid(child, 0)
train(crashes=False)
print(create_trial("run").steps())
