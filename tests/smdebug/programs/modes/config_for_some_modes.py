"""Give the hook a save configuration for one mode only."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

config = smd.SaveConfig(mode_save_configs={smd.modes.EVAL: smd.SaveConfigMode(save_interval=1)})
torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", save_config=config)
hook.register_module(model)
hook.register_loss(loss)
for mode in (smd.modes.TRAIN, smd.modes.EVAL):
    hook.set_mode(mode)
    for _ in range(3):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print(trial.steps(mode=smd.modes.TRAIN), trial.steps(mode=smd.modes.EVAL))
