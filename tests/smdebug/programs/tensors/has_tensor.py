"""Ask whether a trial has a tensor."""

from torch_job import trained

trial = trained(1)
print(trial.has_tensor("MSELoss_output_0"), trial.has_tensor("Linear_weight"))
