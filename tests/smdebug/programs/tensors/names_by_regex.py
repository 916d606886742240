"""Query names by a regex, or by several."""

from torch_job import trained

trial = trained(1, include_collections=["weights", "biases", "gradients"])
print(sorted(trial.tensor_names(regex="^Linear")))
print(sorted(trial.tensor_names(regex=["^gradient", "bias$"])))
print(sorted(trial.tensor_names(regex="^linear")))
