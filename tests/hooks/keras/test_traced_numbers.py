"""Hyperparameters that change after the step of `fit` was traced: what is saved is what the step has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from support import keras_training as kt
from support.made_hooks import closed
from tensortrial import create_trial
from tensortrial.config.save_config import SaveConfig
from tensortrial.mode import modes

Make = Callable[..., Any]
EACH = SaveConfig(save_interval=1)


class Change(keras.callbacks.Callback):
    """Changes the momentum before the third batch and the learning rate before the fourth. Keeps the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Any] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.model.optimizer.momentum = 0.5 if batch < 2 else 0.875
        self.model.optimizer.learning_rate = 0.125 if batch < 3 else 0.25

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.weights.append(flat(self.model))


def flat(model: Any) -> Any:
    return np.concatenate([np.asarray(each).ravel() for each in model.trainable_variables])


def sgd(momentum: float = 0.5) -> Any:
    return keras.optimizers.SGD(0.125, momentum=momentum)


def computed(rates: list[float], momenta: list[float]) -> list[Any]:
    """The weights after each batch, by formula."""
    model = kt.small()
    velocities = [np.zeros(each.shape, np.float32) for each in model.trainable_variables]
    weights = []
    for number, (rate, momentum) in enumerate(zip(rates, momenta, strict=True)):
        gradients = kt.gradients(model, *kt.data(1, number)).values()
        for place, (variable, gradient) in enumerate(zip(model.trainable_variables, gradients, strict=True)):
            velocities[place] = momentum * velocities[place] - rate * gradient
            variable.assign(np.asarray(variable) + velocities[place])
        weights.append(flat(model))
    return weights


def numbers(out: str, name: str) -> list[float]:
    return [
        float(each) for each in create_trial(out).tensor(f"hyperparameters/SGD/{name}").values(modes.TRAIN).values()
    ]


@pytest.mark.parametrize(
    "options", [{"run_eagerly": True}, {}, {"jit_compile": True}], ids=["eager", "compiled", "jit_compile"]
)
@pytest.mark.parametrize("collection", ["hyperparameters", "health"])
@pytest.mark.parametrize("hook_first", [False, True], ids=["hook last", "hook first"])
def test_hyperparameters_that_change_during_fit_are_saved_as_training_uses_them(
    make_hook: Make, out: str, options: Any, collection: str, hook_first: bool
) -> None:
    hook, change = make_hook(include_collections=[collection], save_config=EACH), Change()
    model = kt.small(optimizer=sgd(), **options)
    x, y = kt.data(5)
    callbacks = [hook, change] if hook_first else [change, hook]
    model.fit(x, y, batch_size=kt.BATCH, shuffle=False, verbose=0, callbacks=callbacks)
    hook.close()
    assert model.optimizer.momentum == 0.875
    rates, momenta = numbers(out, "learning_rate"), numbers(out, "momentum")
    assert rates == [0.125, 0.125, 0.125, 0.25, 0.25]
    assert momenta == ([0.5, 0.5, 0.875, 0.875, 0.875] if options.get("run_eagerly") else [0.5] * 5)
    for found, expected in zip(change.weights, computed(rates, momenta), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "steps", [{"start_step": 3}, {"end_step": 2}, {"save_interval": 3}], ids=["late", "early", "each third"]
)
def test_a_hook_that_traces_at_another_step_trains_as_without_it(make_hook: Make, steps: Any) -> None:
    trained = []
    for hook in (
        None,
        make_hook(include_collections=["gradients"], save_config=SaveConfig(**{"save_interval": 1, **steps})),
    ):
        change, model = Change(), kt.small(optimizer=sgd())
        x, y = kt.data(6)
        callbacks = [change] if hook is None else [change, hook]
        model.fit(x, y, batch_size=kt.BATCH, shuffle=False, verbose=0, callbacks=callbacks)
        trained.append(change.weights)
    np.testing.assert_allclose(trained[1], trained[0], atol=1e-6)


@pytest.mark.parametrize("hooks", ["one hook", "a hook for each"])
def test_a_later_fit_goes_on_with_the_numbers_of_its_trace(make_hook: Make, tmp_path: Path, hooks: str) -> None:
    """Labels of another type are traced again; a model that was compiled again, too."""
    model, hook, folders = kt.small(optimizer=sgd()), None, []
    for number, (momentum, dtype) in enumerate([(0.5, "int32"), (0.75, "int32"), (0.875, "int64"), (0.25, "int32")]):
        model.optimizer.momentum = momentum
        if hook is None or hooks == "a hook for each":
            folders.append(str(tmp_path / str(number)))
            hook = make_hook(out_dir=folders[-1], include_collections=["hyperparameters"], save_config=EACH)
        x, y = kt.data(2)
        model.fit(x, y.astype(dtype), batch_size=kt.BATCH, verbose=0, callbacks=[hook])
        if hooks == "a hook for each":
            hook.close()
    kt.compiled(model, sgd(0.125))
    if hooks == "a hook for each":
        folders.append(str(tmp_path / "compiled"))
        hook = make_hook(out_dir=folders[-1], include_collections=["hyperparameters"], save_config=EACH)
    kt.fit(model, 2, hook)
    hook.close()
    found = [each for folder in folders for each in numbers(folder, "momentum")]
    assert found == [0.5, 0.5, 0.5, 0.5, 0.875, 0.875, 0.5, 0.5, 0.125, 0.125]


class Freeze(keras.callbacks.Callback):  # type: ignore[misc]
    """Freezes a layer before the third batch, which Keras does not notice."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.model.get_layer("fc1").trainable = batch < 2


@pytest.mark.parametrize(
    "steps", [{}, {"start_step": 3}, {"end_step": 3}, {"save_interval": 3}], ids=["all", "late", "early", "each third"]
)
def test_a_layer_that_is_frozen_after_the_trace_is_trained_and_saved(make_hook: Make, out: str, steps: Any) -> None:
    trained = []
    hook = make_hook(include_collections=["health"], save_config=SaveConfig(**{"save_interval": 1, **steps}))
    for callbacks in ([Freeze()], [Freeze(), hook]):
        model, (x, y) = kt.small(optimizer=sgd()), kt.data(6)
        model.fit(x, y, batch_size=kt.BATCH, shuffle=False, verbose=0, callbacks=callbacks)
        assert not model.get_layer("fc1").trainable
        trained.append(np.concatenate([np.asarray(each).ravel() for each in model.weights]))
    hook.close()
    np.testing.assert_allclose(trained[1], trained[0], atol=1e-6)
    update, gradient = (
        create_trial(out).tensor(name) for name in ("update/fc1/weights/fc1/kernel:0", "gradients/fc1/kernelGrad")
    )
    assert update.steps(modes.TRAIN) == gradient.steps(modes.TRAIN) == create_trial(out).steps(modes.TRAIN)
    assert all(update.reduction_value(step, "l2", mode=modes.TRAIN) > 0 for step in update.steps(modes.TRAIN))


def test_numbers_and_frozen_layers_count_once_a_callback_makes_a_new_step(make_hook: Make, out: str) -> None:
    class Renew(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                self.model.optimizer.momentum = 0.75
                self.model.get_layer("fc1").trainable = False
                self.model.make_train_function(force=True)

    hook = make_hook(include_collections=["health"], save_config=EACH)
    model = kt.small(optimizer=sgd())
    x, y = kt.data(2)
    model.fit(x, y, batch_size=kt.BATCH, epochs=2, verbose=0, callbacks=[Renew(), hook])
    trial = closed(hook)
    assert numbers(out, "momentum") == [0.5, 0.5, 0.75, 0.75]
    for layer, steps in ("fc1", [0, 1]), ("fc2", [0, 1, 2, 3]):
        kernel = f"{layer}/weights/{layer}/kernel:0"
        for name in (f"gradients/{layer}/kernelGrad", f"update/{kernel}"):
            assert trial.tensor(name).steps(modes.TRAIN) == steps


def frozen() -> Any:
    """A classifier whose first layer and the moving statistics of its second one do not train."""
    keras.utils.set_random_seed(0)
    parts = [keras.layers.Dense(8, name="fc1"), keras.layers.BatchNormalization(name="norm")]
    model = keras.Sequential([keras.layers.Input((64,)), *parts, keras.layers.Dense(10, name="fc2")])
    model.get_layer("fc1").trainable = False
    return kt.compiled(model)


TRAINED = {f"gradients/{name}Grad" for name in ("norm/gamma", "norm/beta", "fc2/kernel", "fc2/bias")}


@pytest.mark.parametrize("how", ["fit", "fit eagerly", "tape", "tape in a function"])
def test_variables_that_do_not_train_have_no_gradients(make_hook: Make, how: str) -> None:
    hook = make_hook(include_collections=["gradients"])
    kt.train(hook, frozen(), how, [kt.data(1), kt.data(1)], lambda x: None)
    trial = closed(hook)
    assert set(trial.collection("gradients").tensor_names) == TRAINED
    assert set(trial.tensor_names(collection="gradients")) == TRAINED


def test_a_layer_that_trains_again_has_gradients(make_hook: Make) -> None:
    class Unfreeze(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                self.model.get_layer("fc1").trainable = True
                kt.compiled(self.model)
                self.model.make_train_function(force=True)

    hook = make_hook(include_collections=["gradients"])
    frozen().fit(*kt.data(2), batch_size=kt.BATCH, epochs=2, verbose=0, callbacks=[Unfreeze(), hook])
    trial = closed(hook)
    assert trial.tensor("gradients/fc1/kernelGrad").steps(modes.TRAIN) == [2, 3]
    assert trial.tensor("gradients/fc2/kernelGrad").steps(modes.TRAIN) == [0, 1, 2, 3]


def test_a_frozen_layer_that_a_train_step_trains_has_gradients(make_hook: Make) -> None:
    import tensorflow as tf

    class Stubborn(keras.Sequential):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            x, y = data
            watched = [getattr(each, "value", each) if kt.KERAS_3 else each for each in self.weights]
            with tf.GradientTape() as tape:
                tape.watch(watched)
                loss = tf.reduce_mean(self.loss(y, self(x, training=True)))
            optimizer.apply_gradients(zip(tape.gradient(loss, watched), self.weights, strict=True))
            return {"loss": loss}

    hook = make_hook(include_collections=["gradients"])
    optimizer = hook.wrap_optimizer(keras.optimizers.SGD(0.1))
    model = Stubborn([keras.layers.Input((64,)), keras.layers.Dense(10, name="fc")])
    model.get_layer("fc").trainable = False
    optimizer.build(model.weights)
    kt.fit(kt.compiled(model, metrics=None), 2, hook)
    assert closed(hook).tensor("gradients/fc/kernelGrad").steps(modes.TRAIN) == [0, 1]


@pytest.mark.skipif(not kt.KERAS_3, reason="optimizers of Keras 2 are written otherwise")
def test_an_optimizer_that_is_built_by_its_first_step_stays_built(make_hook: Make, out: str) -> None:
    class Lazy(keras.optimizers.SGD):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(0.125, momentum=0.5)
            self.is_ready, self.state = False, None

        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            if not self.is_ready:
                self.is_ready, self.state = True, object()
            assert self.state is not None
            return super().apply(grads, trainable_variables)

    hook = make_hook(
        include_collections=["gradients", "hyperparameters"], save_config=SaveConfig(save_interval=1, start_step=1)
    )
    model = kt.small(optimizer=Lazy())
    kt.fit(model, 3, hook)
    state = model.optimizer.state
    kt.fit(model, 2, hook)
    hook.close()
    assert model.optimizer.is_ready
    assert model.optimizer.state is state
    assert create_trial(out).tensor("hyperparameters/Lazy/momentum").value(1, modes.TRAIN) == 0.5
