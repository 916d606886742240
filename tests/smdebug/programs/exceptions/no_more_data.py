"""Ask for a value after the last step of an ended job."""

from smdebug.exceptions import NoMoreData

from torch_job import trained

trial = trained(4)
try:
    trial.tensor("MSELoss_output_0").value(10)
except NoMoreData as error:
    print(type(error).__name__, error.step, error.last_step)
