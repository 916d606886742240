"""Save the tensors whose names match the regex of a collection."""

from gluon_job import hooked, train

hook, net = hooked(include_collections=["mine"])
hook.get_collection("mine").include("relu|bias$")
trial = train(hook, net)
print(sorted(trial.tensor_names(collection="mine")))
