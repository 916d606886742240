"""Save a loss of a session by its collection."""

import smdebug.tensorflow as smd
import tensorflow.compat.v1 as tf
from smdebug.trials import create_trial

tf.disable_eager_execution()
hook = smd.SessionHook("run", include_collections=["losses"], save_config=smd.SaveConfig(save_interval=1))
weight = tf.get_variable("weight", initializer=2.0)
loss = tf.square(weight, name="loss")
hook.add_to_collection("losses", loss)
optimizer = hook.wrap_optimizer(tf.train.GradientDescentOptimizer(0.25))
train = optimizer.minimize(loss)
hook.set_mode(smd.modes.TRAIN)
with tf.train.MonitoredSession(hooks=[hook]) as session:
    for _ in range(3):
        session.run([loss, train])
hook.close()
trial = create_trial("run")
print([round(float(value), 3) for value in trial.tensor("loss:0").values().values()])
