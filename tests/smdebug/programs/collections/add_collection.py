"""Add a collection that the script has made."""

import smdebug.pytorch as smd

from torch_job import ended, hooked, train

hook, model, loss = hooked(include_collections=["mine"])
collection = smd.Collection("mine", include_regex=["bias"])
hook.add_collection(collection)
train(model, loss, 1)
trial = ended(hook)
print(hook.get_collection("mine").name, sorted(trial.tensor_names(collection="mine")))
