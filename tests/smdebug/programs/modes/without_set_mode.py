"""Use the mode GLOBAL without set_mode."""

import smdebug.pytorch as smd

from torch_job import trained

trial = trained(2)
print([mode.name for mode in trial.modes()], trial.steps(), trial.steps(mode=smd.modes.TRAIN))
