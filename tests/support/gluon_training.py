"""Real training for the tests of MXNet: small Gluon networks on scikit-learn's digits."""

from __future__ import annotations

from functools import cache
from typing import Any

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn
from sklearn.datasets import load_digits

BATCH = 32


class Net(gluon.HybridBlock):
    """Two layers. Gluon numbers blocks as they are made; with names of their own they are called the same in each
    test."""

    def __init__(self, prefix: str = "net_", inputs: int = 64) -> None:
        super().__init__(prefix=prefix)
        with self.name_scope():
            self.fc1 = nn.Dense(16, activation="relu", in_units=inputs, prefix="fc1_")
            self.fc2 = nn.Dense(10, in_units=16 if inputs else 0, prefix="fc2_")

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        return self.fc2(self.fc1(x))


@cache
def digits() -> tuple[Any, Any]:
    """All images, in [0, 1], and their labels."""
    images, labels = load_digits(return_X_y=True)
    return mx.nd.array(images / 16), mx.nd.array(labels)


def batches(count: int) -> list[tuple[Any, Any]]:
    x, y = digits()
    return [(x[i * BATCH : (i + 1) * BATCH], y[i * BATCH : (i + 1) * BATCH]) for i in range(count)]


def seeded(make: Any = Net) -> Any:
    mx.random.seed(0)
    block = make()
    block.initialize(mx.init.Xavier())
    return block


def softmax_loss(prefix: str = "loss_") -> Any:
    return gluon.loss.SoftmaxCrossEntropyLoss(prefix=prefix)


def train(net: Any, steps: int = 3, loss: Any = None, rate: float = 0.1) -> list[float]:
    """Train a classifier of digits, and return the mean losses."""
    loss = loss or softmax_loss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate})
    losses = []
    for x, y in batches(steps):
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(BATCH)
        losses.append(float(value.mean().asscalar()))
    return losses


def evaluate(net: Any, steps: int = 1) -> None:
    for x, _ in batches(steps):
        net(x)
