"""Wait for steps that are there."""

import smdebug.pytorch as smd

from torch_job import trained

trial = trained(5, save_interval=2)
print(trial.wait_for_steps([0, 2, 4]), trial.wait_for_steps([0], smd.modes.GLOBAL))
