"""Read the fields of a mode's save configuration."""

import smdebug.pytorch as smd

config = smd.SaveConfigMode(save_interval=3, start_step=2, end_step=10, save_steps=[4])
print(config.save_interval, config.start_step, config.end_step, list(config.save_steps))
default = smd.SaveConfigMode()
print(default.save_interval, default.start_step, default.end_step)
