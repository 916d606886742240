"""Save gradients and weights of a loop with a tape."""

from keras_job import fit_by_tape, hooked, print_tensors

hook, model = hooked(include_collections=["gradients", "weights", "biases"])
trial = fit_by_tape(hook, model)
print_tensors(trial)
