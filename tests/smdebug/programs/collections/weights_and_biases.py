"""Save weights and biases."""

from torch_job import trained

trial = trained(1, include_collections=["weights", "biases"])
print(sorted(trial.tensor_names(collection="weights")), sorted(trial.tensor_names(collection="biases")))
