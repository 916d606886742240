"""Refresh a trial between steps."""

from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked()
train(model, loss, 2)
trial = create_trial("run")
first = len(trial.steps())
train(model, loss, 3)
hook.close()
print(first in (1, 2), trial.steps())
