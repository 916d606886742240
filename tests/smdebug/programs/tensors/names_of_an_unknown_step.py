"""Query the names at a step that does not exist."""

import smdebug.pytorch as smd

from torch_job import trained

trial = trained(3)
print(trial.tensor_names(step=77), trial.tensor_names(step=1, mode=smd.modes.EVAL))
