"""Ask for a reduction that does not exist."""

from torch_job import trained

trial = trained(1)
try:
    print(trial.tensor("MSELoss_output_0").reduction_value(0, "harmonic"))
except Exception as error:
    print("raised", isinstance(error, (ValueError, AttributeError, KeyError)))
