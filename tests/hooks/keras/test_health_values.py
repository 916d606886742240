"""The norms of `health` in `fit`, compared with those of a tape and of the weights before and after each batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from support import keras_training as kt
from tensortrial import create_trial
from tensortrial.config.save_config import SaveConfig
from tensortrial.mode import modes

Make = Callable[..., Any]
STEPS = 4
PARAMETERS = [(layer, kind) for layer in ("fc1", "fc2") for kind in ("kernel", "bias")]

pytestmark = pytest.mark.skipif(not kt.KERAS_3, reason="the optimizers of Keras 2 have other options")
executions = pytest.mark.parametrize(
    "options",
    [{"run_eagerly": True}, {"jit_compile": False}, {"jit_compile": True}],
    ids=["eager", "compiled", "jit_compile"],
)


class Norms(keras.callbacks.Callback):
    """Computes the norms of each parameter, of its gradient and of its update in each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Any] = []
        self.gradients: list[Any] = []
        self.updates: list[Any] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._before = [np.asarray(each, np.float64) for each in self.model.trainable_variables]
        self.weights.append(norms(self._before))
        x, y = kt.data(1, batch)
        with tf.GradientTape() as tape:
            loss = kt.classifier_loss()(y, self.model(x, training=True))
        variables = [each.value for each in self.model.trainable_variables]
        self.gradients.append(norms(tape.gradient(loss, variables)))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        after = self.model.trainable_variables
        self.updates.append(norms(np.asarray(now) - was for now, was in zip(after, self._before, strict=True)))


def norms(arrays: Any) -> list[float]:
    return [float(np.linalg.norm(np.asarray(each, np.float64).ravel())) for each in arrays]


def small(optimizer: Any, policy: str, options: Any) -> Any:
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Input((64,)),
        keras.layers.Dense(16, activation="relu", name="fc1", dtype=policy),
        keras.layers.Dense(10, name="fc2", dtype="float32"),
    ]
    return kt.compiled(keras.Sequential(layers), optimizer, **options)


def fit(make_hook: Make, optimizer: Any, options: Any, policy: str = "float32") -> Norms:
    hook, computed = make_hook(include_collections=["health"], save_config=SaveConfig(save_interval=1)), Norms()
    x, y = kt.data(STEPS)
    model = small(optimizer, policy, options)
    model.fit(x, y, batch_size=kt.BATCH, shuffle=False, verbose=0, callbacks=[computed, hook])
    hook.close()
    return computed


def saved(out: str, name: str) -> Any:
    """What was saved at each step of each parameter."""
    trial = create_trial(out)
    tensors = [trial.tensor(name.format(layer=layer, kind=kind)) for layer, kind in PARAMETERS]
    if "ratio" in name:
        return [[float(each.value(step, modes.TRAIN)) for each in tensors] for step in range(STEPS)]
    return [[each.reduction_value(step, "l2", mode=modes.TRAIN) for each in tensors] for step in range(STEPS)]


def check_weights_and_updates(out: str, computed: Norms) -> None:
    weight = "{layer}/weights/{layer}/{kind}:0"
    np.testing.assert_allclose(saved(out, weight), computed.weights, rtol=1e-5)
    np.testing.assert_allclose(saved(out, f"update/{weight}"), computed.updates, rtol=1e-4, atol=1e-8)
    with np.errstate(all="ignore"):
        ratios = np.where(np.equal(computed.updates, 0), 0, np.divide(computed.updates, computed.weights))
    np.testing.assert_allclose(saved(out, f"update_ratio/{weight}"), ratios, rtol=1e-4, atol=1e-8)


@executions
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("Adam", {"gradient_accumulation_steps": 2}),
        ("SGD", {"use_ema": True, "ema_momentum": 0.75, "ema_overwrite_frequency": 2}),
        ("SGD", {"clipnorm": 0.01}),
    ],
    ids=["accumulation", "moving average", "clipping"],
)
def test_norms_are_those_of_the_batch(make_hook: Make, out: str, options: Any, kind: str, settings: Any) -> None:
    computed = fit(make_hook, getattr(keras.optimizers, kind)(0.01, **settings), options)
    check_weights_and_updates(out, computed)
    np.testing.assert_allclose(saved(out, "gradients/{layer}/{kind}Grad"), computed.gradients, rtol=1e-3)
    if "gradient_accumulation_steps" in settings:
        assert [any(each) for each in computed.updates] == [False, True, False, True]


@executions
@pytest.mark.parametrize("exponent", [10, 22], ids=["no overflow", "overflow"])
def test_norms_in_half_precision_are_without_the_scale(make_hook: Make, out: str, options: Any, exponent: int) -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**exponent)
    computed = fit(make_hook, optimizer, options, "mixed_float16")
    check_weights_and_updates(out, computed)
    gradients = np.asarray(saved(out, "gradients/{layer}/{kind}Grad"))
    skipped = [not any(each) for each in computed.updates]
    assert skipped[0] == (exponent == 22)
    assert not skipped[-1]
    # A step is skipped because some gradient is not finite.
    assert [not np.isfinite(each).all() for each in gradients] == skipped
    finite = np.isfinite(gradients)
    np.testing.assert_allclose(gradients[finite], np.asarray(computed.gradients)[finite], rtol=2e-2)
