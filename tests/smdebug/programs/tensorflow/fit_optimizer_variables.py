"""Save the variables of the optimizer in `fit`."""

import tensorflow as tf

from keras_job import fit, hooked, print_tensors

hook, model = hooked(include_collections=["optimizer_variables"])
trial = fit(hook, model, hook.wrap_optimizer(tf.keras.optimizers.legacy.Adam()))
print_tensors(trial, "optimizer_variables")
