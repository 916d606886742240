"""Save a tensor raw if one of its collections asks for it."""

import smdebug.pytorch as smd

from torch_job import ended, hooked, train

hook, model, loss = hooked(include_collections=["weights", "mine"])
hook.get_collection("mine").include("Linear_weight")
hook.get_collection("mine").reduction_config = smd.ReductionConfig(norms=["l2"])
train(model, loss, 1)
trial = ended(hook)
weight = trial.tensor("Linear_weight")
print(weight.value(0).shape, sorted(weight.reduction_values(0)))
