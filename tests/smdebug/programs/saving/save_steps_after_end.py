"""Save a chosen step although it is after end_step."""

import smdebug.pytorch as smd

from torch_job import trained

trial = trained(9, save_config=smd.SaveConfig(save_interval=2, end_step=3, save_steps=[6]))
print(trial.steps())
