"""Save the steps that the interval divides."""

from torch_job import trained

trial = trained(8, save_interval=3)
print(trial.steps())
