"""Define a collection by a regex."""

from torch_job import ended, hooked, train

hook, model, loss = hooked(include_collections=["mine"])
hook.get_collection("mine").include("Linear_.*put")
train(model, loss, 1)
trial = ended(hook)
print(sorted(trial.tensor_names(collection="mine")))
print(trial.collection("mine").include_regex)
