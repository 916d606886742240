"""Save a tensor of a session by a collection of the script."""

import smdebug.tensorflow as smd
import tensorflow.compat.v1 as tf
from smdebug.trials import create_trial

tf.disable_eager_execution()
hook = smd.SessionHook("run", include_collections=["mine"], save_config=smd.SaveConfig(save_interval=1))
x = tf.placeholder(tf.float32, [None], name="x")
doubled = tf.multiply(x, 2.0, name="doubled")
hook.get_collection("mine").add(doubled)
with tf.train.MonitoredSession(hooks=[hook]) as session:
    for step in range(3):
        session.run(doubled, {x: [float(step), 1.0]})
hook.close()
tensor = create_trial("run").tensor("doubled:0")
print([list(map(float, value)) for value in tensor.values().values()])
