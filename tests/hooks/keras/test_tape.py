"""KerasHook in training loops with a GradientTape, eagerly and inside a `tf.function`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tensortrial.hooks.tensorflow as tt
from support import keras_training as kt
from support.limits import set_limits
from support.made_hooks import closed
from tensortrial import create_trial
from tensortrial.errors import ConfigurationError, TrainingStopped

Make = Callable[..., Any]
STEPS = 4
both = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])


def batches(count: int = STEPS) -> Iterator[tuple[Any, Any]]:
    for number in range(count):
        x, y = kt.data(1, number)
        yield tf.constant(x), tf.constant(y)


def training(wrap: Callable[[Any], Any], model: Any, optimizer: Any = None) -> Callable[[Any, Any], Any]:
    """Return a step of a training loop as the documentation of Keras writes it."""
    optimizer = optimizer or keras.optimizers.SGD(0.1)
    compute = kt.classifier_loss()

    def step(x: Any, y: Any) -> Any:
        with wrap(tf.GradientTape()) as tape:
            loss = compute(y, model(x, training=True))
        found = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))
        return loss

    return step


def by_hand(count: int = STEPS) -> list[dict[str, Any]]:
    """Return the values of each step of the same training without a hook."""
    model, steps = kt.small(), []
    step = training(lambda tape: tape, model)
    for x, y in batches(count):
        weights = {
            f"{layer.name}/{variable.name.rpartition('/')[2].partition(':')[0]}": variable.numpy()
            for layer in model.layers
            for variable in layer.weights
        }
        predictions = np.asarray(model(x))
        found = kt.gradients(model, x, y)
        steps.append(
            {"weights": weights, "gradients": found, "predictions": predictions, "loss": float(step(x, y)), "y": y}
        )
    return steps


@both
def test_a_wrapped_tape_saves_what_training_without_it_computes(make_hook: Make, compiled: bool) -> None:
    hook = make_hook(
        include_collections=["weights", "biases", "gradients", "predictions", "inputs", "layers", "labels"]
    )
    step = training(hook.wrap_tape, kt.small())
    if compiled:
        step = tf.function(step)
    for x, y in batches():
        step(x, y)
        hook.save_tape_logs({"labels": y, "accuracy": 0.5})
    trial = closed(hook)
    assert trial.steps() == list(range(STEPS))
    assert {"loss"} == set(trial.tensor_names(collection="losses"))
    assert trial.tensor_names(collection="metrics") == ["accuracy"]
    assert set(trial.tensor_names(collection="labels")) == {"labels_0"}
    for number, expected in enumerate(by_hand()):
        assert trial.tensor("loss").value(number) == pytest.approx(expected["loss"], rel=1e-6)
        np.testing.assert_array_equal(trial.tensor("labels_0").value(number), expected["y"])
        np.testing.assert_allclose(trial.tensor("predictions_0").value(number), expected["predictions"], atol=1e-5)
        np.testing.assert_allclose(trial.tensor("fc2/outputs").value(number), expected["predictions"], atol=1e-5)
        for name, value in expected["weights"].items():
            found = trial.tensor(f"{name.partition('/')[0]}/weights/{name}:0").value(number)
            np.testing.assert_allclose(found, value, atol=1e-6)
        for name, value in expected["gradients"].items():
            np.testing.assert_allclose(trial.tensor(f"gradients/{name}Grad").value(number), value, atol=1e-6)


@both
def test_a_wrapped_tape_saves_only_what_is_due(make_hook: Make, compiled: bool) -> None:
    hook = make_hook(include_collections=["gradients"], save_config=tt.SaveConfig(save_interval=3))
    step = training(hook.wrap_tape, kt.small())
    if compiled:
        step = tf.function(step)
    for x, y in batches(7):
        step(x, y)
    trial = closed(hook)
    assert trial.steps() == trial.tensor("gradients/fc1/kernelGrad").steps() == [0, 3, 6]


@both
def test_tapes_count_steps_in_the_mode_that_is_set(make_hook: Make, compiled: bool) -> None:
    hook = make_hook()
    step = training(hook.wrap_tape, kt.small())
    if compiled:
        step = tf.function(step)
    for mode, count in ((tt.modes.TRAIN, 3), (tt.modes.EVAL, 2), (tt.modes.TRAIN, 1)):
        hook.set_mode(mode)
        for x, y in batches(count):
            step(x, y)
    loss = closed(hook).tensor("loss")
    assert (loss.steps(tt.modes.TRAIN), loss.steps(tt.modes.EVAL)) == ([0, 1, 2, 3], [0, 1])


@both
def test_a_loop_without_a_model_is_saved(make_hook: Make, compiled: bool) -> None:
    hook = make_hook(include_collections=["weights", "biases", "gradients"])
    kernel, bias = tf.Variable([[2.0], [3.0]], name="line/kernel"), tf.Variable([1.0], name="line/bias")

    def step(x: Any) -> None:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(x @ kernel + bias)
        for variable, found in zip((kernel, bias), tape.gradient(loss, [kernel, bias]), strict=True):
            variable.assign_sub(found)

    if compiled:
        step = tf.function(step)
    for _ in range(2):
        step(tf.constant([[1.0, 10.0]]))
    trial = closed(hook)
    assert trial.tensor("loss").value(0) == 33
    assert trial.tensor("line/weights/line/kernel:0").value(1).tolist() == [[1.0], [-7.0]]
    assert trial.tensor("line/weights/line/bias:0").value(0).tolist() == [1.0]
    assert trial.tensor("gradients/line/kernelGrad").value(0).tolist() == [[1.0], [10.0]]
    assert trial.tensor_names(collection="biases") == ["line/weights/line/bias:0"]


def test_each_iteration_of_a_loop_inside_a_function_is_a_step(make_hook: Make) -> None:
    hook = make_hook(include_collections=["weights", "gradients"], save_config=tt.SaveConfig(save_interval=2))
    weight = tf.Variable(1.0, name="w")

    @tf.function
    def loop(turns: Any) -> None:
        for turn in tf.range(turns):
            with hook.wrap_tape(tf.GradientTape()) as tape:
                loss = weight * weight * tf.cast(turn, tf.float32)
            weight.assign_add(tape.gradient(loss, weight))
            hook.save_scalar("turn", turn)
            hook.log({"half": turn / 2, "loss/log": loss})

    loop(tf.constant(5))
    trial = closed(hook)
    assert trial.tensor("loss").steps() == [0, 2, 4]
    assert [float(trial.tensor("turn").value(step)) for step in range(5)] == [0, 1, 2, 3, 4]
    assert [float(trial.tensor("half").value(step)) for step in range(5)] == [0, 0.5, 1, 1.5, 2]
    # w, 2 w turn are added: 1, 1, 3, 15, 105.
    assert [float(trial.tensor("w:0").value(step)) for step in (0, 2, 4)] == [1, 3, 105]
    assert [float(trial.tensor("loss/log").value(step)) for step in range(5)] == [0, 1, 18, 675, 44100]
    assert [float(trial.tensor("gradients/wGrad").value(step)) for step in (0, 2, 4)] == [0, 12, 840]


def test_steps_that_one_function_unrolls_are_saved_in_order(make_hook: Make) -> None:
    hook = make_hook(include_collections=["weights", "gradients"])
    weight = tf.Variable(1.0, name="w")

    @tf.function
    def three() -> None:
        for factor in (2.0, 3.0, 4.0):
            with hook.wrap_tape(tf.GradientTape()) as tape:
                loss = weight * factor
            weight.assign_add(tape.gradient(loss, weight))
            hook.save_tensor("factor", factor)
            hook.save_tensors({"loss_here": loss, "weight_here": weight})

    for _ in range(10):
        three()
    trial = closed(hook)
    assert trial.steps() == list(range(30))
    factors = [float(trial.tensor("factor").value(step)) for step in range(30)]
    assert factors == [float(trial.tensor("gradients/wGrad").value(step)) for step in range(30)] == [2, 3, 4] * 10
    assert [float(trial.tensor("loss_here").value(step)) for step in range(3)] == [2, 9, 24]
    assert [float(trial.tensor("weight_here").value(step)) for step in range(3)] == [3, 6, 10]
    assert [float(trial.tensor("w:0").value(step)) for step in range(5)] == [1, 3, 6, 10, 12]


def test_a_function_is_traced_as_often_as_without_a_hook(make_hook: Make) -> None:
    def traces(wrap: Callable[[Any], Any]) -> int:
        step = tf.function(training(wrap, kt.small()))
        for x, y in batches():
            step(x, y)
        return int(step.experimental_get_tracing_count())

    hook = make_hook(include_collections=["weights", "gradients", "layers"], save_config=tt.SaveConfig(save_interval=2))
    assert traces(hook.wrap_tape) == traces(lambda tape: tape)


def test_a_wrapped_tape_is_still_the_tape(make_hook: Make) -> None:
    hook = make_hook(include_collections=["gradients"])
    tape = tf.GradientTape(persistent=True)
    assert hook.wrap_tape(tape) is tape
    assert hook.wrap_tape(tape) is tape
    assert isinstance(tape, tf.GradientTape)
    x, w = tf.constant([1.0, 2.0]), tf.Variable([3.0, 4.0], name="w")
    with tape:
        tape.watch(x)
        y = w * x * x
        with tape.stop_recording():
            ignored = w * 100.0
        loss = tf.reduce_sum(y)
    assert tape.gradient(loss, x).numpy().tolist() == [6, 16]
    assert tape.gradient(loss, {"w": w})["w"].numpy().tolist() == [1, 4]
    assert tape.gradient(ignored, w) is None
    assert tape.jacobian(y, w).numpy().tolist() == [[1, 0], [0, 4]]
    trial = closed(hook)
    assert trial.steps() == [0]
    assert trial.tensor("gradients/wGrad").value(0).tolist() == [1, 4]
    assert trial.tensor("loss").value(0) == 19


def test_two_tapes_at_once_are_one_step(make_hook: Make) -> None:
    hook = make_hook(include_collections=["gradients", "weights"])
    a, b = tf.Variable(2.0, name="a"), tf.Variable(5.0, name="b")
    for _ in range(2):
        with hook.wrap_tape(tf.GradientTape()) as first, hook.wrap_tape(tf.GradientTape()) as second:
            product, square = a * b, b * b
        a.assign_sub(first.gradient(product, a))
        b.assign_sub(second.gradient(square, b))
    trial = closed(hook)
    assert trial.steps() == [0, 1]
    assert [float(trial.tensor(name).value(0)) for name in ("loss", "loss_1")] == [10, 25]
    assert [float(trial.tensor(f"gradients/{name}Grad").value(1)) for name in "ab"] == [-5, -10]
    assert [float(trial.tensor(f"{name}:0").value(1)) for name in "ab"] == [-3, -5]


def test_the_whole_gradient_of_an_embedding_is_saved(make_hook: Make) -> None:
    hook = make_hook(include_collections=["gradients"])
    table = tf.Variable(tf.ones([4, 2]), name="table")
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(tf.gather(table, [1, 1, 3]))
    assert isinstance(tape.gradient(loss, table), tf.IndexedSlices)
    assert closed(hook).tensor("gradients/tableGrad").value(0).tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]


@both
def test_a_model_that_is_built_by_its_first_step_is_saved(make_hook: Make, compiled: bool) -> None:
    model = keras.Sequential([keras.layers.Dense(4, name="a"), keras.layers.Dense(10, name="b")])
    hook = make_hook(include_collections=["weights", "gradients", "layers"])
    hook.register_model(model)
    step = training(hook.wrap_tape, model)
    if compiled:
        step = tf.function(step)
    for x, y in batches():
        step(x, y)
    trial = closed(hook)
    for name in ("a/weights/a/kernel:0", "gradients/b/kernelGrad", "a/outputs"):
        assert trial.tensor(name).steps()[-3:] == [1, 2, 3], name
    assert trial.tensor("gradients/a/kernelGrad").steps() == [0, 1, 2, 3]


def test_a_function_compiled_by_xla_is_one_warning(make_hook: Make, caplog: pytest.LogCaptureFixture) -> None:
    hook = make_hook(include_collections=["weights", "gradients"])
    step = tf.function(training(hook.wrap_tape, kt.small()), jit_compile=True)
    with caplog.at_level(logging.WARNING, "tensortrial.hooks"):
        losses = [float(step(x, y)) for x, y in batches()]
    hook.close()
    assert losses == pytest.approx([each["loss"] for each in by_hand()], rel=1e-4)
    said = [record.message for record in caplog.records if "jit_compile=True" in record.message]
    assert len(said) == 1
    assert "remove jit_compile" in said[0]


@both
def test_tensors_inside_another_function_are_a_warning(
    make_hook: Make, compiled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    hook, model = make_hook(include_collections=["layers", "predictions"]), kt.small()
    model.call = tf.function(model.call)
    step = training(hook.wrap_tape, model)
    step = tf.function(step) if compiled else step
    for x, y in batches(2):
        step(x, y)
    assert closed(hook).tensor_names(regex="puts|pred") == ["predictions_0"]
    assert sum("another function are not saved: fc1/inputs, fc1/outputs" in text for text in caplog.messages) == 1


def test_a_tape_that_is_not_wrapped_is_a_warning(make_hook: Make, caplog: pytest.LogCaptureFixture) -> None:
    hook = make_hook(include_collections=["gradients"])
    step = training(lambda tape: tape, kt.small(), hook.wrap_optimizer(keras.optimizers.SGD(0.1)))
    with caplog.at_level(logging.WARNING, "tensortrial.hooks"):
        for x, y in batches():
            step(x, y)
    said = [record.message for record in caplog.records if "no gradients are saved" in record.message]
    assert len(said) == 1
    assert "with hook.wrap_tape(tf.GradientTape()) as tape:" in said[0]


@both
def test_a_wrapped_tape_is_no_warning(make_hook: Make, compiled: bool, caplog: pytest.LogCaptureFixture) -> None:
    hook = make_hook(include_collections=["gradients", "optimizer_variables"])
    step = training(hook.wrap_tape, kt.small(), hook.wrap_optimizer(keras.optimizers.Adam()))
    if compiled:
        step = tf.function(step)
    with caplog.at_level(logging.WARNING, "tensortrial.hooks"):
        for x, y in batches():
            step(x, y)
    assert not caplog.records


def test_wrap_tape_refuses_other_objects(make_hook: Make) -> None:
    with pytest.raises(ConfigurationError, match="GradientTape"):
        make_hook().wrap_tape("tape")


def test_a_wrapped_tape_leaves_layers_unchanged(make_hook: Make) -> None:
    own = keras.layers.Layer.__call__
    step = training(make_hook(save_all=True).wrap_tape, kt.small())
    for x, y in batches(2):
        step(x, y)
    assert keras.layers.Layer.__call__ is own


@both
def test_a_rule_stops_a_training_loop(
    make_hook: Make, out: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, seconds_between_reads_of_a_local_stop_request=0.0)
    hook = make_hook(include_collections=["weights"])
    step = training(hook.wrap_tape, kt.small())
    if compiled:
        step = tf.function(step)
    x, y = next(batches())
    step(x, y)
    (Path(out) / "stop.json").write_text('{"reason": "enough"}')
    # From inside of a function every error comes as one of TensorFlow's.
    with pytest.raises(tf.errors.UnknownError if compiled else TrainingStopped, match="enough"):
        step(x, y)
    trial = create_trial(out)
    assert trial.loaded_all_steps
    assert trial.steps() == [0]


@both
@pytest.mark.skipif(not kt.KERAS_3, reason="Keras 2 has no variables of its own, and no apply")
def test_a_loop_of_keras_3_with_variables_of_tensorflow_is_saved(make_hook: Make, compiled: bool) -> None:
    model, optimizer = kt.small(), keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    hook = make_hook(include_collections=["weights", "gradients"])

    def step(x: Any, y: Any) -> None:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = kt.classifier_loss()(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, [variable.value for variable in model.trainable_variables]))

    if compiled:
        step = tf.function(step)
    for x, y in batches():
        step(x, y)
    trial = closed(hook)
    for number, expected in enumerate(by_hand()):
        for name, value in expected["gradients"].items():
            np.testing.assert_allclose(trial.tensor(f"gradients/{name}Grad").value(number), value, atol=1e-6)
    assert len(trial.tensor_names(collection="gradients")) == 4
