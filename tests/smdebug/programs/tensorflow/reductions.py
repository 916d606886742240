"""Save reductions of weights."""

import smdebug.tensorflow as smd

from keras_job import fit, hooked

hook, model = hooked(include_collections=["weights"], reduction_config=smd.ReductionConfig(reductions=["mean"]))
trial = fit(hook, model)
print(
    {name: sorted(trial.tensor(name).reduction_values(0)) for name in sorted(trial.tensor_names(collection="weights"))}
)
