"""The index says in which order a step of Keras computed its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from tensortrial.config.save_config import SaveConfig

keras: Any = pytest.importorskip("keras")


NAMES = ["zulu", "alpha", "mike"]


def layers() -> Any:
    return keras.Sequential([keras.Input((4,)), *(keras.layers.Dense(4, name=name) for name in NAMES)])


def order_of(out: Path) -> list[str]:
    """Return the tensors of the second step in the order of the index, without variables of the optimizer."""
    with tensortrial.create_trial(out) as trial:
        query = 'select name from tensors where mode_step = 1 order by "order"'
        found = [name for (name,) in trial.sql(query).fetchall()]
    return [each for each in found if not each.startswith(("optimizer/", "hyperparameters/"))]


@pytest.mark.parametrize("eagerly", [True, False], ids=["eager", "graph"])
def test_tensors_of_a_step_are_in_the_order_of_execution(tmp_path: Path, eagerly: bool) -> None:
    import tensortrial.hooks.tensorflow as tt

    model = layers()
    model.compile("sgd", "mse", run_eagerly=eagerly)
    hook = tt.KerasHook(
        str(tmp_path / "run"), save_all=True, save_config=SaveConfig(save_interval=1), include_workers="all"
    )
    data = np.ones((8, 4), np.float32)
    model.fit(data, data, batch_size=4, epochs=1, verbose=0, callbacks=[hook])
    hook.close()
    assert order_of(tmp_path / "run") == [
        *(f"{name}/weights/{name}/{kind}:0" for name in NAMES for kind in ("kernel", "bias")),
        "model_inputs_0",
        *(f"{name}/{kind}" for name in NAMES for kind in ("inputs", "outputs")),
        "predictions_0",
        "labels_0",
        "batch_loss",
        *(f"gradients/{name}/{kind}Grad" for name in reversed(NAMES) for kind in ("bias", "kernel")),
        "loss",
    ]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("listed", ["forward", "backward"])
@pytest.mark.parametrize("registered", [False, True], ids=["seen", "registered"])
def test_tensors_of_a_tape_are_in_the_order_of_execution(
    tmp_path: Path, compiled: bool, listed: str, registered: bool
) -> None:
    import tensorflow as tf

    import tensortrial.hooks.tensorflow as tt

    model = layers()
    hook = tt.KerasHook(
        str(tmp_path / "run"),
        include_collections=["weights", "biases", "gradients", "layers", "inputs", "labels", "predictions", "losses"],
        save_config=SaveConfig(save_interval=1),
    )
    if registered:
        hook.register_model(model)
    optimizer = hook.wrap_optimizer(keras.optimizers.SGD(0.1))
    variables = model.trainable_variables[:: 1 if listed == "forward" else -1]

    def step(x: Any, y: Any) -> None:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, variables)
        hook.save_tape_logs({"labels": y})
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    step = tf.function(step) if compiled else step
    for _ in range(2):
        step(tf.ones((8, 4)), tf.ones((8, 4)))
    hook.close()
    assert order_of(tmp_path / "run") == [
        *(f"{name}/weights/{name}/{kind}:0" for name in NAMES for kind in ("kernel", "bias")),
        "model_inputs_0",
        *(f"{name}/{kind}" for name in NAMES for kind in ("inputs", "outputs")),
        "predictions_0",
        "loss",
        *(f"gradients/{name}/{kind}Grad" for name in reversed(NAMES) for kind in ("bias", "kernel")),
        "labels_0",
    ]


class Crossed(keras.Model):  # type: ignore[misc]
    """Calls its layers in another order than it makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = (keras.layers.Dense(4, name=name) for name in ("head", "body"))

    def call(self, x: Any) -> Any:
        return self.head(self.body(x))


CROSSED = [
    "gradients/head/biasGrad",
    "gradients/head/kernelGrad",
    "gradients/body/biasGrad",
    "gradients/body/kernelGrad",
]


@pytest.mark.parametrize("eagerly", [True, False], ids=["eager", "graph"])
def test_gradients_are_in_the_reverse_order_of_the_calls_of_layers(tmp_path: Path, eagerly: bool) -> None:
    import tensortrial.hooks.tensorflow as tt

    model, data = Crossed(), np.ones((8, 4), np.float32)
    model(data)
    model.compile("sgd", "mse", run_eagerly=eagerly)
    hook = tt.KerasHook(
        str(tmp_path / "run"), include_collections=["gradients"], save_config=SaveConfig(save_interval=1)
    )
    model.fit(data, data, batch_size=4, epochs=1, verbose=0, callbacks=[hook])
    hook.close()
    assert [name for name in order_of(tmp_path / "run") if "gradients" in name] == CROSSED


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
def test_gradients_of_a_tape_are_in_the_reverse_order_of_the_calls_of_layers(tmp_path: Path, compiled: bool) -> None:
    import tensorflow as tf

    import tensortrial.hooks.tensorflow as tt

    hook = tt.KerasHook(
        str(tmp_path / "run"), include_collections=["gradients"], save_config=SaveConfig(save_interval=1)
    )
    model, data = Crossed(), tf.ones((8, 4))
    model(data)

    def step() -> None:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((model(data) - data) ** 2)
        tape.gradient(loss, model.trainable_variables)

    step = tf.function(step) if compiled else step
    step()
    step()
    hook.close()
    assert [name for name in order_of(tmp_path / "run") if "gradients" in name] == CROSSED
