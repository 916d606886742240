"""Ask for the value at a step that was not saved."""

from smdebug.exceptions import StepUnavailable

from torch_job import trained

trial = trained(4, save_interval=2)
try:
    trial.tensor("MSELoss_output_0").value(1)
except StepUnavailable as error:
    print(type(error).__name__, error.step, error.mode.name)
