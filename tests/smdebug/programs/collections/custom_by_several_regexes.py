"""Define a collection by a list of regexes."""

from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked(include_collections=["mine"])
hook.get_collection("mine").include(["weight$", "_input_0"])
train(model, loss, 1)
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names(collection="mine")))
