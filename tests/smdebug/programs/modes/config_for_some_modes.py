"""Give the hook a save configuration for one mode only."""

import smdebug.pytorch as smd
import torch

from torch_job import ended, hooked

config = smd.SaveConfig(mode_save_configs={smd.modes.EVAL: smd.SaveConfigMode(save_interval=1)})
hook, model, loss = hooked(save_config=config)
for mode in (smd.modes.TRAIN, smd.modes.EVAL):
    hook.set_mode(mode)
    for _ in range(3):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
trial = ended(hook)
print(trial.steps(mode=smd.modes.TRAIN), trial.steps(mode=smd.modes.EVAL))
