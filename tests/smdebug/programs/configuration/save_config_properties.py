"""Read what a save configuration decides."""

import smdebug.pytorch as smd

config = smd.SaveConfig(save_interval=3, start_step=2, end_step=10, save_steps=[4])
print([step for step in range(12) if config.should_save_step(smd.modes.TRAIN, step)])
