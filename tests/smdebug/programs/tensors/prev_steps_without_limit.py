"""List all steps before a step."""

from torch_job import trained

trial = trained(9, save_interval=2)
print(trial.tensor("MSELoss_output_0").prev_steps(6, None))
