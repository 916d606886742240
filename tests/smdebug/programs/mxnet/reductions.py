"""Save reductions of weights."""

import smdebug.mxnet as smd

from gluon_job import trained

trial = trained(
    include_collections=["weights"], reduction_config=smd.ReductionConfig(reductions=["mean"], norms=["l1"])
)
print(
    {name: sorted(trial.tensor(name).reduction_values(2)) for name in sorted(trial.tensor_names(collection="weights"))}
)
