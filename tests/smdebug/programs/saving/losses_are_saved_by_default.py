"""Save the losses without any configuration."""

from torch_job import trained

trial = trained(1, save_config=None)
print(sorted(trial.tensor_names()))
print(trial.tensor("MSELoss_output_0").value(0).shape)
