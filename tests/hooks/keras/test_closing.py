"""A closed KerasHook leaves nothing behind; what its odd values and inputs become."""

from __future__ import annotations

import gc
import json
import logging
import weakref
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tensortrial.hooks.tensorflow as tt
from support import keras_training as kt
from support.made_hooks import closed
from support.memory import resident_bytes
from tensortrial import create_trial
from tensortrial.mode import modes

EVERY = {"save_interval": 1}


def loop_of_ones_own(hook: Any) -> list[weakref.ref[Any]]:
    """Train in a loop, two steps with the hook and one after it is closed; what must be free afterwards."""
    model, optimizer = kt.small(), hook.wrap_optimizer(keras.optimizers.Adam(0.01))

    @tf.function
    def step(x: Any, y: Any) -> None:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = kt.classifier_loss()(y, model(x, training=True))
        found = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))

    for number in range(2):
        step(*map(tf.constant, kt.data(1, number)))
    hook.close()
    step(*map(tf.constant, kt.data(1)))
    assert not any(name.startswith("apply") for name in vars(optimizer))
    return [weakref.ref(model), weakref.ref(optimizer)]


def test_a_closed_hook_leaves_nothing_in_a_training_loop(make_hook: Any, out: str) -> None:
    parts = loop_of_ones_own(make_hook(include_collections=["gradients", "optimizer_variables", "layers"]))
    gc.collect()
    assert [part() for part in parts] == [None, None]
    assert create_trial(out).tensor("loss").steps() == [0, 1]


def test_an_open_hook_keeps_neither_an_earlier_model_nor_a_graph(make_hook: Any) -> None:
    hook, kept = make_hook(save_all=True), []
    for _ in range(2):
        model = kt.small()
        kt.fit(model, 1, hook)
        kept.append(weakref.ref(model))
    function = tf.function(lambda x: hook.save_scalar("x", x))
    graph = weakref.ref(function.get_concrete_function(tf.constant(1.0)).graph)
    del model, function
    gc.collect()
    assert kept[0]() is None
    assert graph() is None


def test_an_optimizer_has_the_methods_again_that_it_had(make_hook: Any, out: str) -> None:
    optimizer, before = keras.optimizers.SGD(), []
    hooks = [make_hook(f"{out}-{number}") for number in range(2)]
    for hook in hooks:
        before.append({name: each for name, each in vars(optimizer).items() if name.startswith("apply")})
        hook.wrap_optimizer(optimizer)
    for hook, methods in zip(hooks[::-1], before[::-1], strict=True):
        hook.close()
        assert {name: each for name, each in vars(optimizer).items() if name.startswith("apply")} == methods
    assert [bool(methods) for methods in before] == [False, True]


@pytest.mark.slow
def test_the_memory_of_closed_jobs_is_free(tmp_path: Path) -> None:
    hooks, used = [], []

    def job(number: int) -> None:
        hooks.append(hook := tt.KerasHook(tmp_path / str(number), include_collections=["gradients"]))
        model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(1 << 20, name="large")])
        model.compile("sgd", "mse", run_eagerly=True)
        model.fit(np.ones((1, 5)), np.ones((1, 1 << 20)), verbose=0, callbacks=[hook])
        hook.close()

    for number in range(6):
        job(number)
        keras.backend.clear_session()
        used.append(resident_bytes())
    # A notebook keeps its hooks. Each of the last four would leave 24 MiB of weights, and gradients as large.
    assert used[-1] - used[1] < 80 << 20


# Ragged and sparse values.


class Dense(keras.Model):
    """Takes what is ragged or sparse."""

    def __init__(self) -> None:
        super().__init__(name="net")
        self.fc = keras.layers.Dense(1, name="fc")

    def call(self, x: Any) -> Any:
        x = tf.sparse.to_dense(x) if isinstance(x, tf.SparseTensor) else x.to_tensor()
        return self.fc(tf.ensure_shape(x, (2, 3)))


RAGGED = tf.ragged.constant([[1.0, 2.0], [3.0, 4.0, 5.0]], ragged_rank=1)
SPARSE = tf.sparse.from_dense(np.array([[1.0, 0, 2], [0, 0, 3]], np.float32))
PARTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ragged": (RAGGED, {"values": [1, 2, 3, 4, 5], "row_splits": [0, 2, 5]}),
    "sparse": (SPARSE, {"values": [1, 2, 3], "indices": [[0, 0], [0, 2], [1, 2]], "dense_shape": [2, 3]}),
}
kinds = pytest.mark.parametrize("kind", PARTS)


@kinds
@pytest.mark.parametrize("way", ["graph", "eager", "tape"])
def test_inputs_that_are_not_dense_are_saved_in_parts(
    make_hook: Any, kind: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    value, parts = PARTS[kind]
    hook, model = make_hook(include_collections=["inputs"]), Dense()
    model(value)
    mode = modes.GLOBAL
    if way == "tape":
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(model(value))
        tape.gradient(loss, model.trainable_variables)
    else:
        mode = modes.TRAIN
        model.compile("sgd", "mse", run_eagerly=way == "eager", jit_compile=False)
        data = tf.data.Dataset.from_tensors((value, np.ones((2, 1), np.float32)))
        model.fit(data, shuffle=False, verbose=0, callbacks=[hook])
    trial = closed(hook)
    names = {f"model_inputs_0_{part}" for part in parts}
    assert set(trial.tensor_names(collection="inputs")) == names
    for part, expected in parts.items():
        np.testing.assert_array_equal(trial.tensor(f"model_inputs_0_{part}").value(0, mode), expected)
    assert not [each for each in caplog.records if each.name == "tensortrial.hooks"]


@kinds
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
def test_values_that_are_not_dense_are_saved_in_parts_by_a_call(make_hook: Any, kind: str, compiled: bool) -> None:
    value, parts = PARTS[kind]
    hook = make_hook()

    def save() -> None:
        hook.save_tensor("mine", value)

    (tf.function(save) if compiled else save)()
    trial = closed(hook)
    for part, expected in parts.items():
        np.testing.assert_array_equal(trial.tensor(f"mine_{part}").value(0), expected)


# Odd values.


class Angry:
    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("not an array")


def test_a_value_that_cannot_be_saved_leaves_the_hook_on(
    make_hook: Any, out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT")
    hook, odd = make_hook(), {"none": None, "lists": [[1], [2, 3]], "object": object(), "angry": Angry(), "set": {1}}
    with caplog.at_level(logging.ERROR, "tensortrial"):
        for name, value in odd.items():
            hook.save_tensor(name, value)
            hook.save_scalar(f"{name} number", value)
        hook.save_tensor("words", tf.constant(["a", "bc"]))
        save_keys_and_tracers(hook)
    kt.fit(kt.small(), 1, hook)
    trial = closed(hook)
    assert trial.tensor("loss").steps(modes.TRAIN) == [0]
    assert trial.tensor("words").value(0).tolist() == ["a", "bc"]
    assert not set(odd) & set(trial.tensor_names())
    said = [each.getMessage() for each in caplog.records]
    assert all(any(f"tensor '{name}' is not saved" in each for each in said) for name in [*odd, "tracer"])
    assert json.loads(Path(out, "end", "worker_0.json").read_text())["failure"] is None


def save_keys_and_tracers(hook: Any) -> None:
    """Of JAX, where it is installed."""
    try:
        import jax
    except ImportError:
        hook.save_tensor("tracer", None)
        return
    hook.save_tensor("key", jax.random.key(0))
    hook.save_scalar("key number", jax.random.key(0))

    @jax.jit
    def traced(x: Any) -> Any:
        hook.save_tensor("tracer", x)
        hook.save_scalar("tracer number", x)
        return x

    traced(1.0)


class OddLogs(keras.Model):
    """Reports text."""

    def __init__(self) -> None:
        super().__init__(name="net")
        self.fc = keras.layers.Dense(1, name="fc")

    def call(self, x: Any) -> Any:
        return self.fc(x)

    def train_step(self, data: Any) -> Any:
        return {"loss": tf.reduce_sum(self(data[0])), "words": tf.constant(["a"])}


def test_a_metric_that_is_text_leaves_the_hook_on(make_hook: Any) -> None:
    hook, model = make_hook(), OddLogs()
    model.compile(run_eagerly=True)
    model.fit(np.ones((4, 3)), np.ones((4, 1)), batch_size=2, verbose=0, callbacks=[hook])
    trial = closed(hook)
    assert trial.tensor("loss").steps(modes.TRAIN) == [0, 1]
    assert trial.tensor("words").value(0, modes.TRAIN).tolist() == ["a"]
