"""List the collections of a trial."""

from torch_job import ended, hooked, train

hook, model, loss = hooked(include_collections=["weights", "mine"])
hook.get_collection("mine").include("output")
train(model, loss, 1)
trial = ended(hook)
print(sorted(trial.collections()))
print(sorted(trial.collection("weights").tensor_names))
