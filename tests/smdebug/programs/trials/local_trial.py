"""Open a run by the class LocalTrial."""

from smdebug.trials import LocalTrial

from torch_job import hooked, train

hook, model, loss = hooked(save_interval=2)
train(model, loss, 3)
hook.close()
trial = LocalTrial("job", "run")
print(trial.name, trial.steps())
