"""Save losses raw although the hook saves reductions."""

import smdebug.pytorch as smd
from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked(reduction_config=smd.ReductionConfig(reductions=["mean"]))
train(model, loss, 1)
hook.close()
trial = create_trial("run")
loss = trial.tensor("MSELoss_output_0")
print(loss.value(0).shape, sorted(loss.reduction_values(0)))
