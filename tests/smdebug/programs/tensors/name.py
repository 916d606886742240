"""Read the name of a tensor."""

from torch_job import trained

trial = trained(1, save_interval=2)
print(trial.tensor("MSELoss_output_0").name)
