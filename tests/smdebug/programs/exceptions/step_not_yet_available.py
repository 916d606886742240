"""Ask for a value after the last step of a job that runs."""

from smdebug.exceptions import StepNotYetAvailable
from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked()
train(model, loss, 4)
trial = create_trial("run")
try:
    trial.tensor("MSELoss_output_0").value(10)
except StepNotYetAvailable as error:
    print(type(error).__name__, error.step)
hook.close()
