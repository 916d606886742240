"""List the workers that saved a tensor at a step."""

from torch_job import trained

trial = trained(3, save_interval=2)
print(trial.workers(), trial.tensor("MSELoss_output_0").workers(2))
