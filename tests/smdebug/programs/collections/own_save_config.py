"""Give a collection a save configuration of its own."""

import smdebug.pytorch as smd

from torch_job import ended, hooked, train

hook, model, loss = hooked(include_collections=["weights"])
hook.get_collection("weights").save_config = smd.SaveConfig(save_interval=2)
train(model, loss, 4)
trial = ended(hook)
print(trial.tensor("Linear_weight").steps(), trial.tensor("MSELoss_output_0").steps())
