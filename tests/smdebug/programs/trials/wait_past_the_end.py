"""Wait for a step after the end of the job."""

from smdebug.exceptions import NoMoreData

from torch_job import trained

trial = trained(5, save_interval=2)
try:
    trial.wait_for_steps([0, 30])
except NoMoreData as error:
    print(type(error).__name__, error.step, error.last_step)
