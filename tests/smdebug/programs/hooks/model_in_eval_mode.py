"""Switch the model to evaluation while the hook stays in its mode."""

from torch_job import ended, hooked, train

hook, model, loss = hooked()
model.eval()
train(model, loss, 2)
trial = ended(hook)
print([mode.name for mode in trial.modes()], trial.steps())
