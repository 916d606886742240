"""Save a scalar before `fit`."""

from keras_job import fit, hooked

hook, model = hooked()
hook.save_scalar("seed", 3.0)
trial = fit(hook, model)
print(trial.tensor("scalar/seed").steps())
