"""List the last steps before a step, itself included."""

from torch_job import trained

trial = trained(9, save_interval=2)
tensor = trial.tensor("MSELoss_output_0")
print(tensor.prev_steps(6, 2), tensor.prev_steps(5, 2), tensor.prev_steps(2, 10))
