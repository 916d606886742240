"""Save all tensors of a loop with a tape."""

import numpy as np
import smdebug.tensorflow as smd
import tensorflow as tf
from smdebug.trials import create_trial

tf.keras.utils.set_random_seed(0)
model = tf.keras.Sequential([tf.keras.layers.Dense(3, activation="relu", input_shape=(4,)), tf.keras.layers.Dense(2)])
x, y = np.ones((12, 4), "float32"), np.zeros((12, 2), "float32")
hook = smd.KerasHook("run", save_all=True, save_config=smd.SaveConfig(save_interval=1))
optimizer = hook.wrap_optimizer(tf.keras.optimizers.legacy.Adam())
for _ in range(3):
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
hook.close()
trial = create_trial("run")
print(*sorted(trial.tensor_names()), sep="\n")
