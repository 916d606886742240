"""Assign `save_all` to a hook."""

import smdebug.pytorch as smd

from torch_job import trained_with

hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1), include_collections=["weights"])
hook.save_all = True
trial = trained_with(hook, 4)
print(trial.tensor_names(), trial.steps(), sorted(trial.tensor("Linear_weight").reduction_values(0)))
