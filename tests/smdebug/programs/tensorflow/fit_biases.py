"""Save the biases of the layers in `fit`."""

from keras_job import fit, hooked, print_tensors

hook, model = hooked(include_collections=["biases"])
trial = fit(hook, model)
print_tensors(trial, "biases")
