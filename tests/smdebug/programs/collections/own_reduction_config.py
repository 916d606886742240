"""Give a collection a reduction configuration of its own."""

import smdebug.pytorch as smd

from torch_job import ended, hooked, train

hook, model, loss = hooked(include_collections=["weights", "biases"])
hook.get_collection("weights").reduction_config = smd.ReductionConfig(reductions=["max"])
train(model, loss, 1)
trial = ended(hook)
print(sorted(trial.tensor("Linear_weight").reduction_values(0)))
print(sorted(trial.tensor("Linear_bias").reduction_values(0)))
