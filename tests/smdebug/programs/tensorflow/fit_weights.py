"""Save the weights of the layers in `fit`."""

from keras_job import fit, hooked, print_tensors

hook, model = hooked(include_collections=["weights"])
trial = fit(hook, model)
print_tensors(trial, "weights")
