"""Ask a persistent tape for gradients twice."""

import numpy as np
import smdebug.tensorflow as smd
import tensorflow as tf
from smdebug.trials import create_trial

tf.keras.utils.set_random_seed(0)
model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(4,))])
x, y = np.ones((4, 4), "float32"), np.zeros((4, 2), "float32")
hook = smd.KerasHook("run", save_config=smd.SaveConfig(save_interval=1))
for _ in range(2):
    with hook.wrap_tape(tf.GradientTape(persistent=True)) as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
    tape.gradient(loss, model.trainable_variables)
    tape.gradient(loss, model.trainable_variables)
hook.close()
print(sorted(create_trial("run").tensor_names(collection="losses")))
