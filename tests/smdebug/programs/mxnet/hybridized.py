"""Save the tensors of a hybridized block."""

import mxnet as mx
import smdebug.mxnet as smd
from mxnet import autograd, gluon
from smdebug.trials import create_trial

mx.random.seed(0)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(3, activation="relu"), gluon.nn.Dense(2))
net.initialize()
loss = gluon.loss.SoftmaxCrossEntropyLoss()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
hook = smd.Hook("run", include_collections=["weights"], save_config=smd.SaveConfig(save_interval=1))
net.hybridize()
hook.register_block(net)
hook.register_block(loss)
for _ in range(3):
    with autograd.record():
        result = loss(net(mx.nd.ones((4, 5))), mx.nd.array([0, 1, 0, 1]))
    result.backward()
    trainer.step(4)
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names()), trial.steps())
