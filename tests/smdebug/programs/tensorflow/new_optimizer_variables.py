"""Save the variables of an optimizer of Keras 2.11 or newer in `fit`."""

import tensorflow as tf

from keras_job import fit, hooked, print_tensors

hook, model = hooked(include_collections=["optimizer_variables"])
trial = fit(hook, model, hook.wrap_optimizer(tf.keras.optimizers.Adam()))
print_tensors(trial, "optimizer_variables")
