"""The values that SessionHook saves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from support.graph_training import LOSS, Net, batches
from support.made_hooks import closed
from tensortrial import create_trial

v1 = tf.compat.v1
KERNEL, BIAS = "logits/kernel:0", "logits/bias:0"


def softmax(logits: Any) -> Any:
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def by_hand(weights: list[Any], x: Any, y: Any) -> tuple[Any, list[Any]]:
    """The loss of a Net, and the gradients of hidden kernel and bias, logits kernel and bias, by numpy."""
    hidden_kernel, hidden_bias, kernel, bias = [each.astype(np.float64) for each in weights]
    before = x @ hidden_kernel + hidden_bias
    hidden = np.maximum(before, 0)
    chances = softmax(hidden @ kernel + bias)
    rows = np.arange(len(y))
    loss = -np.log(chances[rows, y]).mean()
    error = chances.copy()
    error[rows, y] -= 1
    error /= len(y)
    back = (error @ kernel.T) * (before > 0)
    return loss, [x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]


class TestValues:
    @pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
    def test_saved_values_are_those_of_a_training_by_hand(self, make_hook: Any, out: str, use_resource: bool) -> None:
        collections = ["weights", "biases", "gradients", "tensorflow_summaries"]
        hook = make_hook(include_collections=collections, include_regex="^relu:0")
        net = Net(hook.wrap_optimizer, use_resource)
        with v1.Session(graph=net.graph) as session:
            session.run(net.init)
            variables = [net.hidden_kernel, net.hidden_bias, net.kernel, net.bias]
            weights = [each.copy() for each in session.run(variables)]
            hook.wrap_session(session)
            for x, y in batches(4):
                session.run(net.train, net.feed(x, y))
        hook.close()

        trial = create_trial(out)
        assert trial.steps() == [0, 1, 2, 3]
        names = ["hidden/kernel:0", "hidden/bias:0", KERNEL, BIAS]
        assert trial.tensor_names(collection="weights") == sorted(names[::2])
        assert trial.tensor_names(collection="biases") == sorted(names[1::2])
        assert trial.tensor_names(collection="tensorflow_summaries") == [LOSS]
        assert trial.tensor_names(collection="losses") == [LOSS]
        assert len(trial.tensor_names(collection="gradients")) == 4
        by_shape = {trial.tensor(name).shape(0): name for name in trial.tensor_names(collection="gradients")}
        for step, (x, y) in enumerate(batches(4)):
            loss, gradients = by_hand(weights, x, y)
            assert trial.tensor(LOSS).value(step) == pytest.approx(loss, rel=1e-5)
            hidden = np.maximum(x @ weights[0] + weights[1], 0)
            np.testing.assert_allclose(trial.tensor("relu:0").value(step), hidden, rtol=1e-4, atol=1e-5)
            for name, weight, gradient in zip(names, weights, gradients, strict=True):
                # As it was before the run: an update of the run itself would be seen here.
                np.testing.assert_allclose(trial.tensor(name).value(step), weight, rtol=1e-4, atol=1e-6)
                found = trial.tensor(by_shape[weight.shape]).value(step)
                np.testing.assert_allclose(found, gradient, rtol=1e-3, atol=1e-6)
            weights = [weight - 0.1 * gradient for weight, gradient in zip(weights, gradients, strict=True)]

    @pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
    def test_a_large_variable_is_saved_as_before_the_run(self, make_hook: Any, use_resource: bool) -> None:
        hook = make_hook(include_collections=["weights"])
        with tf.Graph().as_default():
            large = v1.get_variable(
                "large", [1000, 1000], initializer=v1.zeros_initializer(), use_resource=use_resource
            )
            add = v1.assign_add(large, tf.ones_like(large))
            with v1.train.MonitoredSession(hooks=[hook]) as session:
                for _ in range(3):
                    session.run(add)
        found = closed(hook).tensor("large:0")
        assert [np.unique(found.value(step)).tolist() for step in range(3)] == [[0], [1], [2]]

    def test_saved_values_belong_to_the_hook(self, make_hook: Any) -> None:
        hook = make_hook(include_regex="relu:0")
        net = Net()
        (x, y), *_ = batches(1)
        with net.session([hook]) as session:
            _, hidden = session.run([net.train, net.hidden], net.feed(x, y))
        expected = hidden.copy()
        hidden[:] = 7
        assert np.array_equal(closed(hook).tensor("relu:0").value(0), expected)

    def test_gradients_are_saved_as_computed_and_as_applied(self, make_hook: Any) -> None:
        hook = make_hook(include_collections=["gradients"])
        with tf.Graph().as_default():
            weight = v1.get_variable("weight", initializer=[3.0, 4.0])
            optimizer = hook.wrap_optimizer(v1.train.AdamOptimizer())
            assert hook.wrap_optimizer(optimizer) is optimizer
            pairs = optimizer.compute_gradients(tf.reduce_sum(weight * weight, name="square"))
            clipped, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 1.0)
            # An iterator, such as zip returns, can be consumed only once.
            train = optimizer.apply_gradients(zip(clipped, [weight], strict=True))
            computed, applied = pairs[0][0].name, clipped[0].name
            with v1.train.MonitoredSession(hooks=[hook]) as session:
                session.run(train)
        trial = closed(hook)
        assert set(trial.tensor_names(collection="gradients")) == {computed, applied}
        np.testing.assert_allclose(trial.tensor(computed).value(0), [6, 8])
        np.testing.assert_allclose(trial.tensor(applied).value(0), [0.6, 0.8], rtol=1e-6)
        # What is minimized is a loss under any name.
        assert trial.tensor_names(collection="losses") == ["square:0"]
        assert trial.tensor("square:0").value(0) == 25

    def test_sparse_gradients_are_saved_dense(self, make_hook: Any, out: str) -> None:
        hook = make_hook(include_collections=["gradients"])
        with tf.Graph().as_default():
            table = v1.get_variable("table", [5, 2], initializer=v1.ones_initializer())
            rows = tf.nn.embedding_lookup(table, tf.constant([1, 3, 1]))
            loss = tf.reduce_sum(rows * tf.constant([[1.0], [2.0], [10.0]]))
            train = hook.wrap_optimizer(v1.train.GradientDescentOptimizer(0.1)).minimize(loss)
            with v1.train.MonitoredSession(hooks=[hook]) as session:
                session.run(train)
        (name,) = closed(hook).tensor_names(collection="gradients")
        expected = [[0, 0], [11, 11], [0, 0], [2, 2], [0, 0]]
        assert create_trial(out).tensor(name).value(0).tolist() == expected
