"""Save losses raw although the hook saves reductions."""

import smdebug.pytorch as smd

from torch_job import ended, hooked, train

hook, model, loss = hooked(reduction_config=smd.ReductionConfig(reductions=["mean"]))
train(model, loss, 1)
trial = ended(hook)
loss = trial.tensor("MSELoss_output_0")
print(loss.value(0).shape, sorted(loss.reduction_values(0)))
