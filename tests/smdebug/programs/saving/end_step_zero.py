"""Save nothing of a collection whose end_step is 0."""

import smdebug.pytorch as smd

from torch_job import ended, hooked, train

hook, model, loss = hooked(include_collections=["weights"])
hook.get_collection("losses").save_config = smd.SaveConfig(end_step=0)
train(model, loss, 3)
trial = ended(hook)
print(sorted(trial.tensor_names()))
