"""Save the raw tensor next to its reductions."""

import smdebug.pytorch as smd

from torch_job import trained

config = smd.ReductionConfig(reductions=["mean"], save_raw_tensor=True)
trial = trained(1, include_collections=["weights"], reduction_config=config)
weight = trial.tensor("Linear_weight")
print(weight.value(0).shape, sorted(weight.reduction_values(0)))
