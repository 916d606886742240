"""Ask for a tensor at a step at which it was not saved."""

import smdebug.pytorch as smd
from smdebug.exceptions import TensorUnavailableForStep
from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked(include_collections=["weights"])
hook.get_collection("weights").save_config = smd.SaveConfig(save_interval=2)
train(model, loss, 4)
hook.close()
trial = create_trial("run")
try:
    trial.tensor("Linear_weight").value(1)
except TensorUnavailableForStep as error:
    print(type(error).__name__, error.tname, error.step, error.mode.name)
