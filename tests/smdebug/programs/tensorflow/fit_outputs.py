"""Save the outputs of the model in `fit`."""

from keras_job import fit, hooked, print_tensors

hook, model = hooked(include_collections=["outputs"])
trial = fit(hook, model)
print_tensors(trial, "outputs")
