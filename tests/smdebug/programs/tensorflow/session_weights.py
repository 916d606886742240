"""Save the trainable variables of a session, which are its weights."""

import smdebug.tensorflow as smd
import tensorflow.compat.v1 as tf
from smdebug.trials import create_trial

tf.disable_eager_execution()
hook = smd.SessionHook("run", include_collections=["weights"], save_config=smd.SaveConfig(save_interval=1))
weight = tf.get_variable("dense/weight", initializer=2.0)
train = hook.wrap_optimizer(tf.train.GradientDescentOptimizer(0.25)).minimize(tf.square(weight))
with tf.train.MonitoredSession(hooks=[hook]) as session:
    for _ in range(2):
        session.run(train)
hook.close()
print(create_trial("run").tensor_names(collection="weights"))
