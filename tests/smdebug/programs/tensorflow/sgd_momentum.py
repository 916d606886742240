"""Save the variables of SGD with momentum in `fit`."""

import tensorflow as tf

from keras_job import fit, hooked, print_tensors

hook, model = hooked(include_collections=["optimizer_variables"])
trial = fit(hook, model, hook.wrap_optimizer(tf.keras.optimizers.legacy.SGD(0.1, momentum=0.9)))
print_tensors(trial, "optimizer_variables")
