"""Save all reductions and norms."""

import smdebug.pytorch as smd

from torch_job import trained

config = smd.ReductionConfig(
    reductions=["min", "max", "mean", "std", "variance", "sum", "prod"],
    abs_reductions=["min", "max", "mean"],
    norms=["l1", "l2"],
    abs_norms=["l1"],
)
trial = trained(1, include_collections=["weights"], reduction_config=config)
print(sorted(trial.tensor("Linear_weight").reduction_values(0)))
