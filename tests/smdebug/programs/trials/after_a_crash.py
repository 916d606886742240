"""Read past the end of a run whose process was killed."""

import os
import signal

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
if not (child := os.fork()):
    model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
    hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
    hook.register_module(model)
    hook.register_loss(loss)
    for _ in range(3):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
trial = create_trial("run")
if hasattr(trial, "mark_ended"):
    trial.mark_ended()
try:
    trial.wait_for_steps([100])
except Exception as error:
    print("raised", type(error).__name__)
