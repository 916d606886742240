"""Save gradients of a session with a wrapped optimizer."""

import smdebug.tensorflow as smd
import tensorflow.compat.v1 as tf
from smdebug.trials import create_trial

tf.disable_eager_execution()
hook = smd.SessionHook("run", include_collections=["gradients"], save_config=smd.SaveConfig(save_interval=1))
weight = tf.get_variable("weight", initializer=2.0)
bias = tf.get_variable("bias", initializer=1.0)
loss = tf.square(weight * 3.0 + bias, name="loss")
train = hook.wrap_optimizer(tf.train.GradientDescentOptimizer(0.01)).minimize(loss)
with tf.train.MonitoredSession(hooks=[hook]) as session:
    for _ in range(2):
        session.run([loss, train])
hook.close()
print(len(create_trial("run").tensor_names(collection="gradients")))
