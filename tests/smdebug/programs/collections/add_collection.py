"""Add a collection that the script has made."""

import smdebug.pytorch as smd
from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked(include_collections=["mine"])
collection = smd.Collection("mine", include_regex=["bias"])
hook.add_collection(collection)
train(model, loss, 1)
hook.close()
trial = create_trial("run")
print(hook.get_collection("mine").name, sorted(trial.tensor_names(collection="mine")))
