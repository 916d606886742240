"""Read the optimizer's number of iterations of an eager `fit`."""

import numpy as np
import smdebug.tensorflow as smd
import tensorflow as tf
from smdebug.trials import create_trial

tf.keras.utils.set_random_seed(0)
model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(4,))])
x, y = np.ones((12, 4), "float32"), np.zeros((12, 2), "float32")
hook = smd.KerasHook("run", include_collections=["optimizer_variables"], save_config=smd.SaveConfig(save_interval=1))
model.compile(tf.keras.optimizers.legacy.Adam(), "mse", run_eagerly=True)
model.fit(x, y, batch_size=4, verbose=0, callbacks=[hook])
hook.close()
print(create_trial("run").tensor("Adam/iter:0").steps())
