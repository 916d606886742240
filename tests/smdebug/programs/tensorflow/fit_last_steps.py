"""Save the loss of `fit` with a long interval, over three epochs."""

import numpy as np
import smdebug.tensorflow as smd
import tensorflow as tf
from smdebug.trials import create_trial

tf.keras.utils.set_random_seed(0)
model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(4,))])
x, y = np.ones((16, 4), "float32"), np.zeros((16, 2), "float32")
hook = smd.KerasHook("run", save_config=smd.SaveConfig(save_interval=500))
model.compile(tf.keras.optimizers.legacy.Adam(), "mse")
model.fit(x, y, batch_size=4, epochs=3, verbose=0, callbacks=[hook])
hook.close()
loss = create_trial("run").tensor("loss")
print(loss.steps(), [loss.value(step)[0] > 0 for step in loss.steps()])
