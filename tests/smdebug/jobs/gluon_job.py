"""The job of most programs for MXNet: two dense layers that classify the same batch at each step."""

import mxnet as mx
import smdebug.mxnet as smd
from mxnet import autograd, gluon
from smdebug.trials import create_trial


def hooked(save_interval=1, **options):
    """Return a hook of the run at `run`, and the layers, which `train` registers with it."""
    mx.random.seed(0)
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(3, activation="relu"), gluon.nn.Dense(2))
    net.initialize()
    return smd.Hook("run", save_config=smd.SaveConfig(save_interval=save_interval), **options), net


def train(hook, net):
    """Train for three steps, and return a trial of the job, which has ended."""
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    hook.register_block(net)
    hook.register_block(loss)
    for _ in range(3):
        with autograd.record():
            result = loss(net(mx.nd.ones((4, 5))), mx.nd.array([0, 1, 0, 1]))
        result.backward()
        trainer.step(4)
    hook.close()
    return create_trial("run")


def trained(save_interval=1, **options):
    """Return a trial of a job with a hook that has these options."""
    return train(*hooked(save_interval, **options))
