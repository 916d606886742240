"""Save at another interval in each mode."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked

config = smd.SaveConfig(
    {
        smd.modes.TRAIN: smd.SaveConfigMode(save_interval=2),
        smd.modes.EVAL: smd.SaveConfigMode(save_interval=3),
        smd.modes.PREDICT: smd.SaveConfigMode(save_interval=1),
        smd.modes.GLOBAL: smd.SaveConfigMode(save_interval=1),
    }
)
hook, model, loss = hooked(save_config=config)
for mode in (smd.modes.TRAIN, smd.modes.EVAL):
    hook.set_mode(mode)
    for _ in range(5):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
trial = ended(hook)
print(trial.steps(mode=smd.modes.TRAIN), trial.steps(mode=smd.modes.EVAL), trial.steps())
