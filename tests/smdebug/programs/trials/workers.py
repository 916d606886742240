"""List the workers of a trial, and their number."""

from torch_job import trained

trial = trained(1)
print(trial.workers(), trial.num_workers)
