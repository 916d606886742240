"""Define a collection by a list of regexes."""

from torch_job import ended, hooked, train

hook, model, loss = hooked(include_collections=["mine"])
hook.get_collection("mine").include(["weight$", "_input_0"])
train(model, loss, 1)
trial = ended(hook)
print(sorted(trial.tensor_names(collection="mine")))
