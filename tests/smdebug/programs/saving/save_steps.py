"""Save chosen steps next to those of the interval."""

import smdebug.pytorch as smd

from torch_job import trained

trial = trained(9, save_config=smd.SaveConfig(save_interval=5, save_steps=[3, 7]))
print(trial.steps())
