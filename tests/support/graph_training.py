"""Real training for the tests of sessions: a small network on scikit-learn's digits, in a graph of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

v1 = tf.compat.v1
BATCH = 32
LOSS = "loss/value:0"


@cache
def digits() -> tuple[Any, Any]:
    """All images, in [0, 1], and their labels."""
    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels.astype(np.int64)


def batches(count: int) -> list[tuple[Any, Any]]:
    x, y = digits()
    return [(x[i * BATCH : (i + 1) * BATCH], y[i * BATCH : (i + 1) * BATCH]) for i in range(count)]


def dense(x: Any, units: int, name: str, use_resource: bool = True) -> Any:
    """A layer with a seeded kernel and a bias."""
    with v1.variable_scope(name, use_resource=use_resource):
        kernel = v1.get_variable("kernel", [x.shape[1], units], initializer=v1.glorot_uniform_initializer(seed=7))
        bias = v1.get_variable("bias", [units], initializer=v1.zeros_initializer())
    with tf.name_scope(f"{name}/"):
        return tf.nn.bias_add(tf.matmul(x, kernel, name="MatMul"), bias, name="BiasAdd")


def cross_entropy(y: Any, logits: Any) -> Any:
    return v1.losses.sparse_softmax_cross_entropy(y, logits, scope="loss")


class Net:
    """64 - 16 - 10, fed through placeholders, and trained by gradient descent."""

    def __init__(self, wrap: Callable[[Any], Any] = lambda optimizer: optimizer, use_resource: bool = True) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.x = v1.placeholder(tf.float32, [None, 64], name="x")
            self.y = v1.placeholder(tf.int64, [None], name="y")
            self.hidden = tf.nn.relu(dense(self.x, 16, "hidden", use_resource), name="relu")
            self.logits = dense(self.hidden, 10, "logits", use_resource)
            self.predictions = tf.argmax(self.logits, axis=1, name="predictions")
            self.loss = cross_entropy(self.y, self.logits)
            v1.train.get_or_create_global_step()
            optimizer = wrap(v1.train.GradientDescentOptimizer(0.1))
            self.train = optimizer.minimize(self.loss, v1.train.get_global_step())
            v1.summary.scalar("the_loss", self.loss)
            self.init = v1.global_variables_initializer()
            self.hidden_kernel, self.hidden_bias, self.kernel, self.bias = v1.trainable_variables()
        (update,) = [
            op for op in self.graph.get_operations() if "update_logits/kernel" in op.name and "Apply" in op.type
        ]
        self.gradient = update.inputs[-1]

    def feed(self, x: Any, y: Any) -> dict[Any, Any]:
        return {self.x: x, self.y: y}

    def session(self, hooks: list[Any]) -> Any:
        with self.graph.as_default():
            return v1.train.MonitoredSession(hooks=hooks)
