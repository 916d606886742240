"""Ask for a tensor at a step at which it was not saved."""

import smdebug.pytorch as smd
from smdebug.exceptions import TensorUnavailableForStep

from torch_job import ended, hooked, train

hook, model, loss = hooked(include_collections=["weights"])
hook.get_collection("weights").save_config = smd.SaveConfig(save_interval=2)
train(model, loss, 4)
trial = ended(hook)
try:
    trial.tensor("Linear_weight").value(1)
except TensorUnavailableForStep as error:
    print(type(error).__name__, error.tname, error.step, error.mode.name)
