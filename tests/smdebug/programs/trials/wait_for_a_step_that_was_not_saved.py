"""Wait for a step that was not saved."""

from smdebug.exceptions import StepUnavailable

from torch_job import trained

trial = trained(5, save_interval=2)
try:
    trial.wait_for_steps([0, 3])
except StepUnavailable as error:
    print(type(error).__name__, error.step)
