"""Save from start_step to before end_step, where the interval divides the absolute step."""

import smdebug.pytorch as smd

from torch_job import trained

trial = trained(10, save_config=smd.SaveConfig(save_interval=2, start_step=3, end_step=8))
print(trial.steps())
