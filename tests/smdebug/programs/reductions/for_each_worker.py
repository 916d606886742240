"""Ask for a reduction of a worker."""

from torch_job import trained

trial = trained(1, include_collections=["weights"])
weight = trial.tensor("Linear_weight")
print(weight.reduction_value(0, "max", worker="worker_0") == weight.value(0).max())
