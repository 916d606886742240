"""Save all tensors of a loop with a tape."""

from keras_job import fit_by_tape, hooked

hook, model = hooked(save_all=True)
trial = fit_by_tape(hook, model)
print(*sorted(trial.tensor_names()), sep="\n")
