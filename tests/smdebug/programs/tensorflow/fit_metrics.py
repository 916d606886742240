"""Save the metrics of `fit`."""

from keras_job import fit, hooked, print_tensors

hook, model = hooked(include_collections=["metrics"])
trial = fit(hook, model)
print_tensors(trial, "metrics")
