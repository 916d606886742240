"""Read the value of a mode's step."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", include_regex=["Linear_input"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for mode, number in ((smd.modes.EVAL, 1.0), (smd.modes.TRAIN, 2.0)):
    hook.set_mode(mode)
    model(torch.full((1, 1, 4), number))
hook.close()
trial = create_trial("run")
tensor = trial.tensor("Linear_input_0")
print(tensor.value(0, smd.modes.TRAIN).max(), tensor.value(0, mode=smd.modes.EVAL).max(), tensor.value(1).max())
