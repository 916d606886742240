"""Save the tensors whose names match a regex, in the collection `default`."""

from torch_job import trained

trial = trained(2, include_regex=["Linear_output"])
print(sorted(trial.tensor_names()))
print(sorted(trial.tensor_names(collection="default")))
