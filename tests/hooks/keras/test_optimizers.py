"""What KerasHook saves of optimizers, and of losses and gradients that they scale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from support import keras_training as kt
from support.made_hooks import closed
from tensortrial import create_trial
from tensortrial.mode import modes

Make = Callable[..., Any]
TRAIN = modes.TRAIN
KERNEL = "gradients/fc1/kernelGrad"
both = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])


# Learning rates.


def rates(out: str) -> list[float]:
    trial = create_trial(out)
    (name,) = (name for name in trial.tensor_names(collection="optimizer_variables") if "learning_rate" in name)
    assert name in ("optimizer/learning_rate:0", "optimizer/adam/learning_rate:0", "optimizer/Adam/learning_rate:0")
    return [float(value) for value in trial.tensor(name).values(TRAIN).values()]


def adam(rate: Any) -> Any:
    return keras.optimizers.Adam(rate, name="adam" if kt.KERAS_3 else "Adam")


def test_the_learning_rate_is_saved_as_a_callback_changes_it(make_hook: Make, out: str) -> None:
    hook = make_hook(include_collections=["optimizer_variables"])
    model = kt.small(optimizer=adam(0.5))
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.5 / 2**epoch)
    x, y = kt.data(1)
    model.fit(x, y, batch_size=kt.BATCH, epochs=3, verbose=0, callbacks=[schedule, hook])
    hook.close()
    assert rates(out) == [0.5, 0.25, 0.125]


def test_the_learning_rate_of_a_schedule_is_that_of_each_step(make_hook: Make, out: str) -> None:
    hook = make_hook(include_collections=["optimizer_variables"])
    kt.fit(kt.small(optimizer=adam(keras.optimizers.schedules.PolynomialDecay(1.0, 4, 0.0))), 3, hook)
    hook.close()
    assert rates(out) == [1.0, 0.75, 0.5]


@pytest.mark.skipif(kt.KERAS_3, reason="Keras 3 has no older optimizers")
def test_the_learning_rate_of_an_older_optimizer_is_saved(make_hook: Make, out: str) -> None:
    hook = make_hook(include_collections=["optimizer_variables"])
    kt.fit(kt.small(optimizer=keras.optimizers.legacy.Adam(0.5)), 2, hook)
    hook.close()
    assert rates(out)[-1] == 0.5


@both
def test_the_learning_rate_of_a_schedule_is_saved_in_a_training_loop(make_hook: Make, compiled: bool) -> None:
    hook = make_hook(include_collections=["optimizer_variables"])
    optimizer = hook.wrap_optimizer(adam(keras.optimizers.schedules.PolynomialDecay(1.0, 4, 0.0)))
    model = kt.small()
    optimizer.build(model.trainable_variables)
    step = training(hook, model, optimizer, scaled=False)
    if compiled:
        step = tf.function(step)
    for number in range(3):
        step(*map(tf.constant, kt.data(1, number)))
    trial = closed(hook)
    (name,) = (name for name in trial.tensor_names() if "learning_rate" in name)
    assert [float(value) for value in trial.tensor(name).values().values()] == [1.0, 0.75, 0.5]


# Several optimizers.


class Adversaries(keras.Model):
    """Trains two layers, each by an optimizer of its own."""

    def __init__(self, hook: Any) -> None:
        super().__init__(name="net")
        self.optimizers = [hook.wrap_optimizer(keras.optimizers.Adam(0.01)) for _ in range(2)]
        self.fc1, self.fc2 = keras.layers.Dense(4, name="fc1"), keras.layers.Dense(10, name="fc2")

    def call(self, x: Any) -> Any:
        return self.fc2(self.fc1(x))

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(kt.classifier_loss()(y, self(x, training=True)))
        for optimizer, layer in zip(self.optimizers, (self.fc1, self.fc2), strict=True):
            found = tape.gradient(loss, layer.trainable_variables)
            optimizer.apply_gradients(zip(found, layer.trainable_variables, strict=True))
        return {"loss": loss}


@pytest.mark.parametrize("eagerly", [False, True], ids=["graph", "eager"])
def test_the_variables_of_wrapped_optimizers_are_saved_in_fit(make_hook: Make, eagerly: bool) -> None:
    keras.utils.set_random_seed(0)
    hook = make_hook(include_collections=["optimizer_variables", "gradients"])
    model = Adversaries(hook)
    model(kt.data(1)[0])
    for optimizer, layer in zip(model.optimizers, (model.fc1, model.fc2), strict=True):
        optimizer.build(layer.trainable_variables)
    model.compile(jit_compile=False, run_eagerly=eagerly)
    kt.fit(model, 3, hook)
    expected = [
        np.asarray(each)
        for optimizer in model.optimizers
        for each in (optimizer.variables if kt.KERAS_3 else optimizer.variables())
    ]
    before = len(hook.recorder.collections.require("optimizer_variables").tensor_names)
    trial = closed(hook)
    found = [name for name in trial.tensor_names(collection="optimizer_variables") if "learning_rate" not in name]
    kernels = [name for name in found if "fc1" in name or "fc2" in name]
    assert before == 0
    assert len(kernels) == 8
    assert all(trial.tensor(name).steps(TRAIN) == [0, 1, 2] for name in found)
    # Saved are those before the last step's update: its number is one behind.
    iterations = [int(trial.tensor(name).value(2, TRAIN)) for name in found if "iteration" in name]
    assert sorted(iterations) == [0, 2, 2]  # the one that it is compiled with is never applied
    assert [int(value) for value in expected if value.shape == () and value.dtype.kind == "i"] == [3, 3]
    assert len(trial.tensor_names(collection="gradients")) == 4


# Scaled losses.


def training(hook: Any, model: Any, optimizer: Any, scaled: bool, indirectly: bool = False) -> Callable[..., Any]:
    """A step of a loop as the documents of Keras write it, with a scaled loss or without."""
    wrap = (lambda tape: tape) if hook is None else hook.wrap_tape

    def step(x: Any, y: Any) -> Any:
        with wrap(tf.GradientTape()) as tape:
            loss = kt.classifier_loss()(y, model(x, training=True))
            target = loss
            if scaled:
                target = (optimizer.scale_loss if kt.KERAS_3 else optimizer.get_scaled_loss)(loss)
            if indirectly:
                target = target * 1.0
        found = tape.gradient(target, model.trainable_variables)
        if scaled and not kt.KERAS_3:
            found = optimizer.get_unscaled_gradients(found)
        optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))
        return loss

    return step


def loss_scaling(kind: str) -> Any:
    sgd = keras.optimizers.SGD(0.1)
    if kind == "factor":
        return keras.optimizers.SGD(0.1, loss_scale_factor=1024.0)
    if kt.KERAS_3:
        return keras.optimizers.LossScaleOptimizer(sgd, initial_scale=1024.0, dynamic_growth_steps=2)
    return keras.mixed_precision.LossScaleOptimizer(sgd, initial_scale=1024.0, dynamic_growth_steps=2)


scalings = pytest.mark.parametrize("kind", ["optimizer", "factor"] if kt.KERAS_3 else ["optimizer"])


@both
@scalings
@pytest.mark.parametrize("indirectly", [False, True], ids=["loss", "of a loss"])
def test_what_a_tape_sees_of_a_scaled_loss_is_unscaled(
    make_hook: Make, compiled: bool, kind: str, indirectly: bool
) -> None:
    expected = []
    model = kt.small()
    step = training(None, model, keras.optimizers.SGD(0.1), scaled=False)
    for number in range(4):
        x, y = map(tf.constant, kt.data(1, number))
        gradient = kt.gradients(model, x, y)["fc1/kernel"]
        expected.append((float(step(x, y)), gradient))
    hook = make_hook(include_collections=["gradients"])
    model, optimizer = kt.small(), loss_scaling(kind)
    if kt.KERAS_3:
        optimizer.build(model.trainable_variables)
    step = training(hook, model, optimizer, True, indirectly)
    if compiled:
        step = tf.function(step)
    for number in range(4):
        step(*map(tf.constant, kt.data(1, number)))
    trial = closed(hook)
    assert trial.tensor(KERNEL).steps() == [0, 1, 2, 3]
    for number, (loss, gradient) in enumerate(expected):
        assert float(trial.tensor("loss").value(number)) == pytest.approx(loss, rel=1e-4)
        np.testing.assert_allclose(trial.tensor(KERNEL).value(number), gradient, rtol=1e-3, atol=1e-6)


@scalings
@pytest.mark.parametrize("eagerly", [False, True], ids=["graph", "eager"])
def test_what_fit_saves_of_a_scaled_loss_is_unscaled(make_hook: Make, kind: str, eagerly: bool) -> None:
    model, (x, y) = kt.small(optimizer=loss_scaling(kind), run_eagerly=eagerly), kt.data(1)
    expected = kt.gradients(model, x, y)["fc1/kernel"]
    loss = float(kt.classifier_loss()(y, model(x)))
    hook = make_hook(include_collections=["gradients", "losses"], include_regex="batch_loss")
    kt.fit(model, 1, hook)
    trial = closed(hook)
    np.testing.assert_allclose(trial.tensor(KERNEL).value(0, TRAIN), expected, rtol=1e-3, atol=1e-6)
    for name in ("loss", "batch_loss"):
        assert float(trial.tensor(name).value(0, TRAIN)) == pytest.approx(loss, rel=1e-4)


@both
def test_gradients_too_small_for_half_precision_are_saved(make_hook: Make, out: str, compiled: bool) -> None:
    hook = make_hook(include_collections=["gradients"])
    kernel = tf.Variable(tf.cast([2.0, 3.0], tf.float16), name="kernel")
    optimizer = loss_scaling("optimizer")

    def step() -> None:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(tf.cast(kernel, tf.float32)) * 2e-8
            scaled = (optimizer.scale_loss if kt.KERAS_3 else optimizer.get_scaled_loss)(loss)
        tape.gradient(scaled, [kernel])

    (tf.function(step) if compiled else step)()
    hook.close()
    (name,) = create_trial(out).tensor_names(collection="gradients")
    found = create_trial(out).tensor(name).value(0)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [2e-8, 2e-8], rtol=1e-2)


# TensorBoard's callback.


@pytest.mark.parametrize("each_step", [True, False], ids=["each step", "default"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_the_tensorboard_callback_runs_with_the_hook(
    make_hook: Make, out: str, tmp_path: Path, before: bool, each_step: bool
) -> None:
    def fit(folder: Path, hook: Any = None) -> tuple[Any, Any]:
        callbacks = [
            keras.callbacks.TensorBoard(str(folder), write_steps_per_second=each_step),
            *([] if hook is None else [hook]),
        ]
        model, (x, y) = kt.small(), kt.data(3)
        own = model.fit(
            x, y, batch_size=kt.BATCH, shuffle=False, verbose=0, callbacks=callbacks[:: 1 if before else -1]
        )
        return own.history["loss"], model

    hook = make_hook(include_collections=["weights", "gradients"])
    losses, model = fit(tmp_path / "with", hook)
    hook.close()
    expected, _ = fit(tmp_path / "without")
    assert losses == pytest.approx(expected, rel=1e-5)
    assert create_trial(out).tensor(KERNEL).steps(TRAIN) == [0, 1, 2]
    # The model has its own function again, and a fit without the hook shows that.
    x, y = kt.data(2)
    board = keras.callbacks.TensorBoard(str(tmp_path / "after"), write_steps_per_second=each_step)
    model.fit(x, y, batch_size=kt.BATCH, verbose=0, callbacks=[board])
    if each_step:
        graphs = {folder: has_train_graph(tmp_path / folder) for folder in ("with", "without", "after")}
        assert set(graphs.values()) == {not kt.KERAS_3}


def has_train_graph(folder: Path) -> bool:
    (events,) = folder.glob("train/events*")
    return any(event.graph_def for event in tf.compat.v1.train.summary_iterator(str(events)))
