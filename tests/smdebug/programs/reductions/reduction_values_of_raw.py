"""List no reduction of a tensor that was saved raw."""

from torch_job import trained

trial = trained(1, include_collections=["weights"])
print(trial.tensor("Linear_weight").reduction_values(0))
