"""Save the tensors whose names match the regex of a collection."""

from keras_job import fit, hooked

hook, model = hooked(include_collections=["mine"])
hook.get_collection("mine").include("dense_1/.*bias")
trial = fit(hook, model)
print(sorted(trial.tensor_names(collection="mine")))
