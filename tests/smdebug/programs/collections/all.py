"""Save all tensors by the collection `all`."""

from torch_job import trained

trial = trained(1, include_collections=["all"])
print(sorted(trial.tensor_names()))
