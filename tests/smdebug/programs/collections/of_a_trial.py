"""List the collections of a trial."""

from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked(include_collections=["weights", "mine"])
hook.get_collection("mine").include("output")
train(model, loss, 1)
hook.close()
trial = create_trial("run")
print(sorted(trial.collections()))
print(sorted(trial.collection("weights").tensor_names))
