"""Train and evaluate an estimator with a hook."""

import numpy as np
import smdebug.tensorflow as smd
import tensorflow.compat.v1 as tf
from smdebug.trials import create_trial

tf.disable_eager_execution()


def model(features, labels, mode):
    weight = tf.get_variable("weight", initializer=2.0)
    loss = tf.losses.mean_squared_error(labels, features["x"] * weight)
    optimizer = hook.wrap_optimizer(tf.train.GradientDescentOptimizer(0.1))
    train = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def inputs():
    return tf.data.Dataset.from_tensors(({"x": np.ones(4, "float32")}, np.ones(4, "float32"))).repeat()


hook = smd.EstimatorHook("run", include_collections=["losses"], save_config=smd.SaveConfig(save_interval=1))
estimator = tf.estimator.Estimator(model, "model")
hook.set_mode(smd.modes.TRAIN)
estimator.train(inputs, steps=3, hooks=[hook])
hook.set_mode(smd.modes.EVAL)
estimator.evaluate(inputs, steps=2, hooks=[hook])
hook.close()
trial = create_trial("run")
print(len(trial.steps(smd.modes.TRAIN)) >= 3, len(trial.steps(smd.modes.EVAL)) >= 2)
