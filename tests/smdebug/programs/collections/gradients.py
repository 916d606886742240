"""Save gradients."""

from torch_job import trained

trial = trained(2, include_collections=["gradients"])
print(sorted(trial.tensor_names(collection="gradients")))
print(trial.tensor("gradient/Linear_bias").value(1).shape)
