"""Save all tensors of a small model."""

from torch_job import trained

trial = trained(2, save_all=True)
print(sorted(trial.tensor_names()))
print(trial.steps())
