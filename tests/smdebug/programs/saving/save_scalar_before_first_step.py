"""Save a scalar before the first step."""

from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked()
hook.save_scalar("seed", 7.0)
train(model, loss, 2)
hook.close()
trial = create_trial("run")
print(trial.tensor("scalar/seed").steps(), trial.tensor("scalar/seed").value(0).item())
