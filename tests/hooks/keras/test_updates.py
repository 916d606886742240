"""What a batch of `fit` changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import keras_training as kt
from support.made_hooks import closed
from tensortrial import create_trial, diagnose
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig
from tensortrial.mode import modes

Make = Callable[..., Any]
EACH = SaveConfig(save_interval=1)


def trained(make_hook: Make, batches: int = 3, optimizer: Any = "sgd", **options: Any) -> tuple[Any, Any]:
    """Train with updates as raw values. Return the model and its trial."""
    hook = make_hook(include_collections=["updates", "weights", "biases"], **{"save_config": EACH, **options})
    hook.get_collection("updates").reduction_config = ReductionConfig(norms=["l2"], save_raw_tensor=True)
    model = kt.small(optimizer=optimizer)
    kt.fit(model, batches, hook)
    return model, closed(hook)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_an_update_is_what_a_step_adds_to_a_weight(make_hook: Make, optimizer: str) -> None:
    model, trial = trained(make_hook, optimizer=optimizer)
    weights = {
        f"{layer.name}/weights/{layer.name}/{key}:0": getattr(layer, key)
        for layer in (model.get_layer("fc1"), model.get_layer("fc2"))
        for key in ("kernel", "bias")
    }
    for name, end in weights.items():
        tensor, update = trial.tensor(name), trial.tensor(f"update/{name}")
        assert update.steps(modes.TRAIN) == [0, 1, 2]
        saved = [tensor.value(step, modes.TRAIN) for step in range(3)]
        for step, (before, after) in enumerate(zip(saved, [*saved[1:], np.asarray(end)], strict=True)):
            found = update.value(step, modes.TRAIN)
            assert np.array_equal(found, after - before)
            assert np.any(found)
            ratio = trial.tensor(f"update_ratio/{name}").value(step, modes.TRAIN)
            size = np.linalg.norm(before)  # 0 of a bias in the first step
            assert ratio == (pytest.approx(np.linalg.norm(found) / size, rel=1e-5) if size else np.inf)


def test_a_zero_weight_that_a_step_leaves_unchanged_has_the_ratio_zero(make_hook: Make) -> None:
    keras: Any = pytest.importorskip("keras")
    _, trial = trained(make_hook, 1, keras.optimizers.SGD(0.0))  # as in the first step of a warm-up
    ratios = [float(trial.tensor(name).value(0, modes.TRAIN)) for name in trial.tensor_names(regex="^update_ratio/")]
    assert ratios == [0] * 4


def test_by_default_the_norms_of_updates_are_saved_at_due_steps_of_training(make_hook: Make) -> None:
    hook = make_hook(include_collections=["updates"], save_config=SaveConfig(save_interval=2))
    model = kt.small()
    x, y = kt.data(3)
    model.fit(x, y, batch_size=kt.BATCH, epochs=1, verbose=0, callbacks=[hook], validation_data=(x, y))
    trial = closed(hook)
    names = trial.tensor_names(collection="updates")
    assert len(names) == 2 * len(model.trainable_weights)
    for name in names:
        tensor = trial.tensor(name)
        assert (tensor.steps(modes.TRAIN), tensor.steps(modes.EVAL)) == ([0, 2], [])
        assert tensor.reduction_values(0, modes.TRAIN).keys() == (
            {("l2", False)} if name.startswith("update/") else set()
        )


def test_a_frozen_weight_has_no_update(make_hook: Make) -> None:
    hook = make_hook(include_collections=["updates"], save_config=EACH)
    model = kt.small()
    model.layers[0].trainable = False
    model.compile("sgd", loss=model.loss)
    kt.fit(model, 1, hook)
    names = closed(hook).tensor_names(collection="updates")
    weights = "fc2/weights/fc2/bias:0", "fc2/weights/fc2/kernel:0"
    assert names == [f"{kind}/{weight}" for kind in ("update", "update_ratio") for weight in weights]


def test_hyperparameters_are_saved_as_each_step_uses_them(make_hook: Make) -> None:
    keras: Any = pytest.importorskip("keras")
    hook = make_hook(include_collections=["hyperparameters"], save_config=EACH)
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
    kt.fit(kt.small(optimizer=keras.optimizers.Adam(schedule, beta_1=0.75)), 3, hook)
    trial = closed(hook)
    rates = [float(trial.tensor("hyperparameters/Adam/learning_rate").value(step, modes.TRAIN)) for step in range(3)]
    assert rates == pytest.approx([0.1, 0.05, 0.025])
    assert trial.tensor("hyperparameters/Adam/beta_1").value(2, modes.TRAIN) == 0.75
    assert "hyperparameters/Adam/amsgrad" not in trial.tensor_names()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_a_tape_saves_the_hyperparameters_that_fit_saves(
    make_hook: Make, tmp_path: Path, compiled: bool, kind: str
) -> None:
    keras: Any = pytest.importorskip("keras")

    def optimizer() -> Any:
        schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
        return getattr(keras.optimizers, kind)(schedule, weight_decay=0.25)

    saved = {}
    for name in ("fit", "tape"):
        hook = make_hook(out_dir=str(tmp_path / name), include_collections=["hyperparameters"], save_config=EACH)
        if name == "fit":
            kt.fit(kt.small(optimizer=optimizer()), 3, hook)
        else:
            hook.set_mode(modes.TRAIN)
            tape_trained(hook, compiled, optimizer())
        trial = closed(hook)
        names = trial.tensor_names(collection="hyperparameters")
        saved[name] = {each: [float(v) for v in trial.tensor(each).values(modes.TRAIN).values()] for each in names}
    assert saved["tape"] == saved["fit"]
    assert saved["tape"][f"hyperparameters/{kind}/weight_decay"] == [0.25] * 3
    assert saved["tape"][f"hyperparameters/{kind}/learning_rate"] == pytest.approx([0.1, 0.05, 0.025])


def test_hyperparameters_that_change_in_a_training_loop_are_saved_as_each_step_uses_them(make_hook: Make) -> None:
    keras: Any = pytest.importorskip("keras")
    hook = make_hook(include_collections=["hyperparameters"], save_config=SaveConfig(save_interval=2))
    optimizer = keras.optimizers.SGD(0.1, momentum=0.5)

    def change(number: int) -> None:
        optimizer.learning_rate.assign(0.1 * (number + 1))
        optimizer.momentum = 0.5 if number < 2 else 0.75

    tape_trained(hook, False, optimizer, steps=5, before=change)
    trial = closed(hook)
    rate, momentum = (trial.tensor(f"hyperparameters/SGD/{name}") for name in ("learning_rate", "momentum"))
    assert list(rate.values().values()) == pytest.approx([0.1, 0.3, 0.5])
    assert list(momentum.values().values()) == [0.5, 0.75, 0.75]


def test_a_learning_rate_that_is_assigned_is_saved_from_inside_a_function(make_hook: Make) -> None:
    keras: Any = pytest.importorskip("keras")
    hook = make_hook(include_collections=["hyperparameters"], save_config=EACH)
    optimizer = keras.optimizers.SGD(0.1)
    tape_trained(hook, True, optimizer, before=lambda number: optimizer.learning_rate.assign(0.1 * (number + 1)))
    rate = closed(hook).tensor("hyperparameters/SGD/learning_rate")
    assert list(rate.values().values()) == pytest.approx([0.1, 0.2, 0.3])


def test_a_number_that_changes_after_a_function_was_traced_is_saved_as_the_function_has_it(make_hook: Make) -> None:
    keras: Any = pytest.importorskip("keras")
    hook = make_hook(include_collections=["hyperparameters"], save_config=EACH)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.5)
    tape_trained(hook, True, optimizer, before=lambda number: setattr(optimizer, "momentum", 0.5 + 0.1 * number))
    hook.close()
    assert list(create_trial(hook.out_dir).tensor("hyperparameters/SGD/momentum").values().values()) == [0.5] * 3


@pytest.mark.parametrize("under_tape", [False, True], ids=["fit", "tape"])
def test_health_is_one_word_in_keras_too(make_hook: Make, under_tape: bool) -> None:
    keras: Any = pytest.importorskip("keras")
    hook = make_hook(include_collections=["health"], save_config=EACH)
    if under_tape:
        tape_trained(hook, True, keras.optimizers.Adam(0.01), steps=24)
    else:
        kt.fit(kt.small(optimizer=keras.optimizers.Adam(0.01)), 24, hook)
    trial = closed(hook)
    step = trial.steps()[3]
    kernel = "fc1/weights/fc1/kernel:0"
    assert trial.tensor(kernel).reduction_value(step, "l2") > 0
    assert trial.tensor("gradients/fc1/kernelGrad").reduction_value(step, "l2") > 0
    assert 1e-4 < float(trial.tensor(f"update_ratio/{kernel}").value(step)) < 0.5
    rms, kurtosis = (trial.tensor("fc1/outputs").reduction_value(step, name) for name in ("rms", "kurtosis"))
    assert rms > 0
    assert kurtosis > 1
    assert 0.1 < trial.tensor("relu/outputs").reduction_value(step, "zero_count") / (32 * 16) < 0.9
    assert not trial.tensor_names(regex="/inputs|^labels_|^model_inputs_")
    moments = trial.tensor_names(regex="^optimizer/.*(momentum|/m/|velocity)")
    assert moments
    found = diagnose(trial)
    assert found.is_healthy, str(found)
    assert {"UpdateRatioOutOfRange", "ActivationOutliers", "ExplodingTensor"} <= set(found.checked)


tapes = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])


def tape_trained(
    hook: Any, compiled: bool, optimizer: Any, steps: int = 3, wrapped: bool = True, before: Any = None
) -> list[Any]:
    """Train under a tape. Return the weights before each step, and at the end."""
    tf = pytest.importorskip("tensorflow")
    model, compute = kt.small(), kt.classifier_loss()
    if wrapped:
        optimizer = hook.wrap_optimizer(optimizer)

    def step(x: Any, y: Any) -> None:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = compute(y, model(x, training=True))
        found = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))

    run = tf.function(step) if compiled else step
    seen = []
    for number in range(steps):
        if before is not None:
            before(number)
        x, y = kt.data(1, number)
        seen.append([np.asarray(each) for each in model.trainable_variables])
        run(tf.constant(x), tf.constant(y))
    return [*seen, [np.asarray(each) for each in model.trainable_variables]]


@tapes
def test_an_update_under_a_tape_is_what_the_wrapped_optimizer_changes(make_hook: Make, compiled: bool) -> None:
    keras: Any = pytest.importorskip("keras")
    hook = make_hook(include_collections=["updates"], save_config=SaveConfig(save_interval=2))
    hook.get_collection("updates").reduction_config = ReductionConfig(norms=["l2"], save_raw_tensor=True)
    seen = tape_trained(hook, compiled, keras.optimizers.Adam(0.01))
    trial = closed(hook)
    names = [f"{layer}/weights/{layer}/{leaf}:0" for layer in ("fc1", "fc2") for leaf in ("kernel", "bias")]
    assert trial.tensor_names(collection="updates") == sorted(
        f"{kind}/{name}" for kind in ("update", "update_ratio") for name in names
    )
    for step in (0, 2):
        for name, before, after in zip(names, seen[step], seen[step + 1], strict=True):
            update = trial.tensor(f"update/{name}")
            assert update.steps() == [0, 2]
            np.testing.assert_allclose(update.value(step), after - before, atol=1e-7)
            size = np.linalg.norm(before)
            ratio = float(trial.tensor(f"update_ratio/{name}").value(step))
            assert ratio == (pytest.approx(np.linalg.norm(after - before) / size, rel=1e-4) if size else np.inf)


@tapes
def test_updates_under_a_tape_need_a_wrapped_optimizer_and_their_collection(make_hook: Make, compiled: bool) -> None:
    keras: Any = pytest.importorskip("keras")
    optimizer = keras.optimizers.SGD(0.1)
    hook = make_hook(save_all=True)
    tape_trained(hook, compiled, optimizer)
    hook.close()
    assert create_trial(hook.out_dir).tensor_names(regex="^update") == []
    # The optimizer has its own methods back.
    assert not {"apply", "apply_gradients"} & vars(optimizer).keys()


def test_an_optimizer_that_fails_under_a_tape_raises_its_own_error(make_hook: Make) -> None:
    keras: Any = pytest.importorskip("keras")
    hook = make_hook(include_collections=["updates"])
    optimizer = hook.wrap_optimizer(keras.optimizers.SGD(0.1))
    with pytest.raises((TypeError, ValueError, AttributeError)) as raised:
        optimizer.apply_gradients(None)
    assert "tensortrial" not in str(raised.value)
    with pytest.raises(TypeError):
        optimizer.apply_gradients()
    hook.close()
