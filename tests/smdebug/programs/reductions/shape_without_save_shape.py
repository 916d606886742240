"""Ask for the shape of a tensor of which only reductions were saved."""

import smdebug.pytorch as smd

from torch_job import trained

config = smd.ReductionConfig(reductions=["mean"])
trial = trained(1, include_collections=["weights"], reduction_config=config)
try:
    print(trial.tensor("Linear_weight").shape(0))
except Exception as error:
    print("raised", type(error).__name__)
