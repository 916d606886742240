"""Save all tensors of `fit`."""

import tensorflow as tf

from keras_job import fit, hooked

hook, model = hooked(save_all=True)
trial = fit(hook, model, hook.wrap_optimizer(tf.keras.optimizers.legacy.Adam()))
print(*sorted(trial.tensor_names()), sep="\n")
