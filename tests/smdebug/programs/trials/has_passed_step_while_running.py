"""Ask whether a step was passed while the job runs."""

from smdebug.core.tensor import StepState
from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked(save_interval=2)
train(model, loss, 5)
trial = create_trial("run")
print(trial.has_passed_step(0) == StepState.AVAILABLE, trial.has_passed_step(1).name, trial.has_passed_step(50).name)
hook.close()
