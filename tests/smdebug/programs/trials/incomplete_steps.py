"""List incomplete steps, too."""

from torch_job import trained

trial = trained(6, save_interval=2)
print(trial.steps(show_incomplete_steps=True))
