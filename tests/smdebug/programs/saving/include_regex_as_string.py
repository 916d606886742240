"""Give a regex as a string."""

from torch_job import trained

trial = trained(1, include_regex="Linear_output")
print(sorted(trial.tensor_names()))
