"""Save the shape of a tensor next to its reductions."""

import smdebug.pytorch as smd

from torch_job import trained

config = smd.ReductionConfig(reductions=["mean"], save_shape=True)
trial = trained(1, include_collections=["weights"], reduction_config=config)
weight = trial.tensor("Linear_weight")
print(weight.shape(0), weight.shapes())
