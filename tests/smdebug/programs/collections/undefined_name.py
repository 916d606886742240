"""Name a collection that is not defined: training goes on."""

from torch_job import trained

trial = trained(2, include_collections=["weights", "activations"])
print(sorted(trial.tensor_names()))
