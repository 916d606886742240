"""Read the weight of each step of `fit`, which starts at 1 and becomes 1 less in each."""

import numpy as np
import smdebug.tensorflow as smd
import tensorflow as tf
from smdebug.trials import create_trial

model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,), use_bias=False, kernel_initializer="ones")])
hook = smd.KerasHook("run", include_collections=["weights"], save_config=smd.SaveConfig(save_interval=1))
optimizer = hook.wrap_optimizer(tf.keras.optimizers.legacy.SGD(1.0))
model.compile(optimizer, loss=lambda labels, outputs: tf.reduce_mean(outputs))
model.fit(np.ones((3, 1)), np.ones(3), batch_size=1, verbose=0, callbacks=[hook])
hook.close()
trial = create_trial("run")
weight = trial.tensor(trial.tensor_names(collection="weights")[0])
print({step: float(np.ravel(value)[0]) for step, value in weight.values().items()})
