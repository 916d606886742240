"""Save all, also in mode EVAL, and list the gradients of that mode."""

import mxnet as mx
import smdebug.mxnet as smd
from mxnet import autograd, gluon
from smdebug.trials import create_trial

mx.random.seed(0)
net, loss = gluon.nn.Dense(2), gluon.loss.L2Loss()
net.initialize()
hook = smd.Hook("run", save_all=True, save_config=smd.SaveConfig(save_interval=1))
hook.register_block(net)
hook.register_block(loss)
for mode in (smd.modes.TRAIN, smd.modes.EVAL):
    hook.set_mode(mode)
    with autograd.record():
        value = loss(net(mx.nd.ones((3, 4))), mx.nd.zeros((3, 2)))
    value.backward()
hook.close()
names = create_trial("run").tensor_names(mode=smd.modes.EVAL)
print(any(name.startswith("gradient/") for name in names))
