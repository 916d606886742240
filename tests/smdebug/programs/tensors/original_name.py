"""Read the name that a tensor has in the framework."""

from torch_job import trained

trial = trained(1)
print(trial.tensor("MSELoss_output_0").original_name)
