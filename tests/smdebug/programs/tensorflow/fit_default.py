"""Save losses and metrics of `fit` without any configuration."""

from keras_job import fit, hooked

hook, model = hooked()
trial = fit(hook, model)
print(*sorted(trial.tensor_names()), sep="\n")
print(trial.steps(), [mode.name for mode in trial.modes()])
