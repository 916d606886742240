"""Ask for a reduction that was not saved, of a tensor without its value."""

import smdebug.pytorch as smd

from torch_job import trained

config = smd.ReductionConfig(reductions=["mean"])
trial = trained(1, include_collections=["weights"], reduction_config=config)
try:
    print(trial.tensor("Linear_weight").reduction_value(0, "max"))
except Exception as error:
    print("raised", type(error).__name__)
