"""Wait for the end of a job, as notebooks do."""

from smdebug.trials import create_trial

from torch_job import ended, hooked, train

hook, model, loss = hooked()
train(model, loss, 2)
trial = create_trial("run")
print(trial.loaded_all_steps)
trial = ended(hook)
while not trial.loaded_all_steps:
    trial.steps()
print(trial.loaded_all_steps, trial.steps())
