"""Switch the model to evaluation while the hook stays in its mode."""

from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked()
model.eval()
train(model, loss, 2)
hook.close()
trial = create_trial("run")
print([mode.name for mode in trial.modes()], trial.steps())
