"""Save every step with an interval of 1."""

from torch_job import trained

trial = trained(4)
print(trial.steps())
print(sorted(trial.tensor_names()))
