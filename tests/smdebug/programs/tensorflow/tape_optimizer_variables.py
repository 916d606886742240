"""Save the variables of the optimizer of a loop with a tape."""

from keras_job import fit_by_tape, hooked

hook, model = hooked(include_collections=["optimizer_variables"])
trial = fit_by_tape(hook, model)
print(sorted(trial.tensor_names(collection="optimizer_variables")))
