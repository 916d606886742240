"""What EstimatorHook saves of the calls of an Estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensortrial.hooks.tensorflow as tt
from support.estimator_training import make_estimator, take
from support.graph_training import LOSS, digits, v1
from support.made_hooks import closed
from tensortrial import create_trial
from tensortrial.mode import modes

KERNEL = "logits/kernel:0"


@pytest.fixture
def make(out: str) -> Iterator[Callable[..., Any]]:
    """Make a hook that saves each step into `out`, unless an option says otherwise. It is closed after the test."""
    made: list[Any] = []

    def make(**options: Any) -> Any:
        options.setdefault("save_config", tt.SaveConfig(save_interval=1))
        made.append(tt.EstimatorHook(out, **options))
        return made[-1]

    yield make
    for hook in made:
        hook.close()


def test_each_call_counts_in_its_mode_and_the_next_goes_on(make: Any, out: str, tmp_path: Path) -> None:
    hook = make(include_collections=["weights", "gradients"], include_regex="^predictions:0$")
    estimator = make_estimator(str(tmp_path / "model"), hook.wrap_optimizer)
    accuracies, digit = [], []
    for _ in range(2):
        estimator.train(take(4), hooks=[hook])
        accuracies.append(estimator.evaluate(take(3), hooks=[hook])["accuracy"])
        digit.append([found["digit"] for found in estimator.predict(take(2), hooks=[hook])])
    assert hook.recorder.active
    trial = create_trial(out)
    assert not trial.loaded_all_steps
    hook.close()
    trial.refresh()

    assert trial.tensor(LOSS).steps(modes.TRAIN) == list(range(8))
    assert trial.tensor(LOSS).steps(modes.EVAL) == list(range(6))
    assert trial.steps(modes.PREDICT) == list(range(4))
    gradients = trial.tensor_names(collection="gradients")
    assert len(gradients) == 4
    for name in gradients:
        assert trial.tensor(name).steps(modes.TRAIN) == list(range(8))
        assert trial.tensor(name).steps(modes.EVAL) == []
    # Gradient descent goes on over the calls, and evaluation sees what training left behind.
    kernel = trial.tensor(KERNEL)
    (gradient,) = [trial.tensor(name) for name in gradients if trial.tensor(name).shape(0, modes.TRAIN) == (16, 10)]
    for step in range(7):
        expected = kernel.value(step, modes.TRAIN) - 0.1 * gradient.value(step, modes.TRAIN)
        np.testing.assert_allclose(kernel.value(step + 1, modes.TRAIN), expected, rtol=1e-5, atol=1e-7)
    for call in range(2):
        last = 4 * call + 3
        expected = kernel.value(last, modes.TRAIN) - 0.1 * gradient.value(last, modes.TRAIN)
        for step in range(3 * call, 3 * call + 3):
            np.testing.assert_allclose(kernel.value(step, modes.EVAL), expected, rtol=1e-5, atol=1e-7)
        _, labels = digits()
        predictions = trial.tensor("predictions:0")
        found = np.concatenate([predictions.value(step, modes.EVAL) for step in range(3 * call, 3 * call + 3)])
        assert (found == labels[:96]).mean() == pytest.approx(accuracies[call])
        found = np.concatenate([predictions.value(step, modes.PREDICT) for step in range(2 * call, 2 * call + 2)])
        assert found.tolist() == digit[call]


def test_an_evaluation_in_the_middle_of_training_loses_no_step(make: Any, tmp_path: Path) -> None:
    hook = make(include_collections=["weights"])
    estimator = make_estimator(str(tmp_path / "model"), hook.wrap_optimizer, save_checkpoints_steps=3)
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(take(50), max_steps=8, hooks=[hook]),
        tf.estimator.EvalSpec(take(2), steps=None, hooks=[hook], throttle_secs=0),
    )
    trial = closed(hook)
    assert trial.tensor(LOSS).steps(modes.TRAIN) == list(range(8))
    evaluated = trial.tensor(LOSS).steps(modes.EVAL)
    assert len(evaluated) >= 4
    assert evaluated == list(range(len(evaluated)))
    # The first was in between.
    assert trial.global_step(modes.EVAL, 0) < trial.global_step(modes.TRAIN, 7)
    values = [trial.tensor(KERNEL).value(step, modes.TRAIN) for step in range(8)]
    assert len({value.tobytes() for value in values}) == 8


def test_the_loss_of_an_estimator_is_a_loss_under_any_name(make: Any, tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        weight = v1.get_variable("weight", [64, 1], initializer=v1.zeros_initializer())
        error = tf.squeeze(features @ weight, 1) - tf.cast(labels, tf.float32)
        loss = tf.reduce_mean(error * error, name="square")
        train = v1.train.AdagradOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    hook = make()
    config = tf.estimator.RunConfig(log_step_count_steps=None, save_summary_steps=None)
    tf.estimator.Estimator(model_fn, str(tmp_path / "model"), config).train(take(2), hooks=[hook])
    trial = closed(hook)
    assert trial.tensor_names(collection="losses") == ["square:0"]
    _, labels = digits()
    assert trial.tensor("square:0").value(0, modes.TRAIN) == pytest.approx((labels[:32] ** 2).mean())


def test_a_canned_estimator_is_saved(make: Any, tmp_path: Path) -> None:
    hook = make(include_collections=["weights", "biases"])
    column = tf.feature_column.numeric_column("image", shape=[64])
    config = tf.estimator.RunConfig(log_step_count_steps=None, tf_random_seed=1)
    estimator = tf.estimator.DNNClassifier([16], [column], str(tmp_path / "model"), n_classes=10, config=config)

    def input_fn() -> Any:
        return take(3)().map(lambda image, label: ({"image": image}, label))

    estimator.train(input_fn, hooks=[hook])
    estimator.evaluate(input_fn, hooks=[hook])
    trial = closed(hook)
    assert trial.steps(modes.TRAIN) == trial.steps(modes.EVAL) == [0, 1, 2]
    assert len(trial.tensor_names(collection="weights")) == len(trial.tensor_names(collection="biases")) == 2
    # Each of the two graphs has a name of its own for it.
    losses = [trial.tensor(name) for name in trial.tensor_names(collection="losses")]
    for mode in (modes.TRAIN, modes.EVAL):
        first = [loss.value(0, mode) for loss in losses if 0 in loss.steps(mode)]
        assert first
        assert first == pytest.approx([np.log(10)] * len(first), rel=0.5)


# tf.estimator itself imports what TensorFlow has moved elsewhere.
@pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")
def test_replicas_of_a_distribution_strategy_are_saved(make: Any, tmp_path: Path) -> None:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    hook = make(include_collections=["weights", "biases"])
    estimator = make_estimator(str(tmp_path / "model"), hook.wrap_optimizer, train_distribute=strategy)
    estimator.train(take(3), hooks=[hook])
    trial = closed(hook)
    assert trial.steps(modes.TRAIN) == [0, 1, 2]
    assert KERNEL in trial.tensor_names(collection="weights")
    assert not np.array_equal(trial.tensor(KERNEL).value(0, modes.TRAIN), trial.tensor(KERNEL).value(2, modes.TRAIN))
