"""Save a scalar before the first step."""

from torch_job import ended, hooked, train

hook, model, loss = hooked()
hook.save_scalar("seed", 7.0)
train(model, loss, 2)
trial = ended(hook)
print(trial.tensor("scalar/seed").steps(), trial.tensor("scalar/seed").value(0).item())
