"""Read the last complete step of a trial."""

from torch_job import trained

trial = trained(6, save_interval=2)
trial.steps()
print(trial.last_complete_step)
