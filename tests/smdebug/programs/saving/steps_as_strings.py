"""Give steps as strings, as a JSON configuration holds them."""

import smdebug.pytorch as smd

from torch_job import trained

trial = trained(8, save_config=smd.SaveConfig(save_interval="2", start_step="1", end_step="6"))
print(trial.steps())
