"""An estimator that learns scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from support.graph_training import BATCH, cross_entropy, dense, digits, v1


def make_estimator(folder: str, wrap: Callable[[Any], Any] | None = None, **config: Any) -> Any:
    """64 - 16 - 10, trained by gradient descent; `wrap` is called with each optimizer."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        logits = dense(tf.nn.relu(dense(features, 16, "hidden"), name="relu"), 10, "logits")
        predictions = tf.argmax(logits, axis=1, name="predictions")
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, {"digit": predictions})
        loss = cross_entropy(labels, logits)
        if mode == tf.estimator.ModeKeys.EVAL:
            accuracy = v1.metrics.accuracy(labels, predictions)
            return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
        optimizer = v1.train.GradientDescentOptimizer(0.1)
        if wrap is not None:
            optimizer = wrap(optimizer)
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, train_op=optimizer.minimize(loss, v1.train.get_global_step())
        )

    options: dict[str, Any] = {"log_step_count_steps": None, "save_summary_steps": None, **config}
    return tf.estimator.Estimator(model_fn, folder, tf.estimator.RunConfig(tf_random_seed=1, **options))


def take(count: int) -> Callable[[], Any]:
    """Return an input_fn of the first batches."""

    def input_fn() -> Any:
        images, labels = digits()
        return tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH).take(count)

    return input_fn
