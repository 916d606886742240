"""Save gradients in `fit`."""

import tensorflow as tf

from keras_job import fit, hooked, print_tensors

hook, model = hooked(include_collections=["gradients"])
trial = fit(hook, model, hook.wrap_optimizer(tf.keras.optimizers.legacy.Adam()))
print_tensors(trial, "gradients")
