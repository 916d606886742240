"""Count steps for each mode, and globally."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked

hook, model, loss = hooked()
for _ in range(2):
    hook.set_mode(smd.modes.TRAIN)
    for _ in range(3):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2))
trial = ended(hook)
print([mode.name for mode in trial.modes()])
print(trial.steps(), trial.steps(mode=smd.modes.TRAIN), trial.steps(mode=smd.modes.EVAL))
print([trial.global_step(smd.modes.EVAL, step) for step in trial.steps(mode=smd.modes.EVAL)])
