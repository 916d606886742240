"""Callbacks that run the model on batches of their own while a step of `fit` or `evaluate` is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from support import keras_training as kt
from support.made_hooks import closed
from tensortrial.config.save_config import SaveConfig
from tensortrial.hooks.keras.backend import uncompiled
from tensortrial.mode import modes

Make = Callable[..., Any]
BATCHES = 3


def run(model: Any, method: str) -> None:
    x, y = kt.data(1, 7)
    arguments = (x[:3],) if method.startswith("predict") else (x[:3], y[:3])
    getattr(model, method)(*arguments, **({} if method.endswith("on_batch") else {"verbose": 0}))


class Extra(keras.callbacks.Callback):
    """Calls a method of the model at the begin or the end of each batch."""

    def __init__(self, method: str, when: str) -> None:
        super().__init__()
        kind = "test" if method == "test_on_batch" else "train"
        setattr(self, f"on_{kind}_batch_{when}", lambda batch, logs=None: run(self.model, method))


def steps(method: str, when: str) -> tuple[list[Any], list[Any], Any]:
    """The kernels before each step of a loop that does the same as `fit`, the gradients of them, and the last one."""
    model, kernels, gradients = kt.small(), [], []
    for number in range(BATCHES):
        x, y = kt.data(1, number)
        if when == "begin":
            run(model, method)
        kernels.append(np.array(model.get_weights()[0]))
        gradients.append(kt.gradients(model, x, y)["fc1/kernel"])
        model.train_on_batch(x, y)
        after = np.array(model.get_weights()[0])
        if when == "end":
            run(model, method)
    return kernels, gradients, after


@pytest.mark.parametrize(
    ("method", "when", "hook_first"),
    [
        ("train_on_batch", "begin", True),
        ("train_on_batch", "end", False),
        ("test_on_batch", "end", False),
        ("predict", "end", False),
    ],
)
def test_a_step_of_a_callback_neither_ends_fit_nor_joins_the_open_step(
    make_hook: Make, method: str, when: str, hook_first: bool
) -> None:
    model, extra = kt.small(metrics=[]), Extra(method, when)
    hook = make_hook(include_collections=["weights", "gradients", "updates"], save_config=SaveConfig(save_interval=1))
    x, y = kt.data(BATCHES)
    callbacks = [hook, extra] if hook_first else [extra, hook]
    options = {"validation_data": kt.data(1, 5)} if method == "test_on_batch" else {}
    model.fit(x, y, batch_size=kt.BATCH, shuffle=False, verbose=0, callbacks=callbacks, **options)
    trial = closed(hook)
    assert trial.steps(modes.TRAIN) == list(range(BATCHES))
    kernels, gradients, after = steps(method, when)
    name = "fc1/weights/fc1/kernel:0"
    for step in range(BATCHES):
        np.testing.assert_allclose(trial.tensor(name).value(step, modes.TRAIN), kernels[step], atol=1e-6)
        saved = trial.tensor("gradients/fc1/kernelGrad").value(step, modes.TRAIN)
        np.testing.assert_allclose(saved, gradients[step], atol=1e-6)
    moved = trial.tensor(f"update/{name}").reduction_value(BATCHES - 1, "l2", modes.TRAIN)
    np.testing.assert_allclose(moved, np.linalg.norm(after - kernels[-1]), rtol=1e-4)


@pytest.mark.parametrize("method", ["evaluate", "predict"])
def test_fit_is_saved_to_its_end_if_a_callback_evaluates_with_the_same_hook(
    make_hook: Make, out: str, method: str
) -> None:
    model, (x, y) = kt.small(), kt.data(BATCHES)
    hook = make_hook(include_collections=["weights", "gradients"], save_config=SaveConfig(save_interval=1))
    data = (x, y) if method == "evaluate" else (x,)
    inner = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: getattr(model, method)(*data, batch_size=kt.BATCH, callbacks=[hook], verbose=0)
    )
    model.fit(x, y, batch_size=kt.BATCH, epochs=3, callbacks=[hook, inner], validation_data=kt.data(1, 5), verbose=0)
    trial = closed(hook)
    every = list(range(3 * BATCHES))
    assert trial.tensor("gradients/fc1/kernelGrad").steps(modes.TRAIN) == every
    assert trial.tensor("loss").steps(modes.TRAIN) == every
    evaluated = {"evaluate": (3 * BATCHES + 3, 0), "predict": (3, 3 * BATCHES)}
    assert (len(trial.steps(modes.EVAL)), len(trial.steps(modes.PREDICT))) == evaluated[method]
    assert not hasattr(model.train_function, "original")


@pytest.mark.parametrize("hook_first", [True, False])
def test_the_learning_rate_is_the_one_that_the_step_uses(make_hook: Make, out: str, hook_first: bool) -> None:
    model, (x, y) = kt.small(), kt.data(BATCHES)
    hook = make_hook(include_regex="learning_rate", save_config=SaveConfig(save_interval=1))
    warmup = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: model.optimizer.learning_rate.assign(0.25 * (batch + 1))
    )
    callbacks = [hook, warmup] if hook_first else [warmup, hook]
    model.fit(x, y, batch_size=kt.BATCH, callbacks=callbacks, verbose=0)
    trial = closed(hook)
    (name,) = trial.tensor_names(regex="^optimizer/")
    assert trial.tensor(name).values(modes.TRAIN) == {0: 0.25, 1: 0.5, 2: 0.75}


def test_a_step_is_saved_though_a_callback_evaluates_with_the_hook_as_it_begins(make_hook: Make) -> None:
    model, (x, y) = kt.small(), kt.data(BATCHES)
    hook = make_hook(include_collections=["gradients"], save_config=SaveConfig(save_interval=1))
    inner = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: model.evaluate(x, y, callbacks=[hook], verbose=0)
    )
    model.fit(x, y, batch_size=kt.BATCH, callbacks=[hook, inner], verbose=0)
    trial = closed(hook)
    assert trial.tensor("gradients/fc1/kernelGrad").steps(modes.TRAIN) == list(range(BATCHES))
    assert trial.tensor("loss").steps(modes.TRAIN) == list(range(BATCHES))


@pytest.mark.parametrize("tensors", [True, False])
def test_a_step_keeps_its_logs_though_an_earlier_callback_evaluates_with_the_hook_as_it_ends(
    make_hook: Make, tensors: bool
) -> None:
    model, (x, y) = kt.small(), kt.data(BATCHES)
    names = ["gradients"] if tensors else []
    hook = make_hook(include_collections=names, save_config=SaveConfig(save_interval=1))
    logged: list[float] = []
    inner = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: model.evaluate(x, y, batch_size=kt.BATCH, callbacks=[hook], verbose=0)
    )
    last = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: logged.append(logs["loss"]))
    model.fit(x, y, batch_size=kt.BATCH, shuffle=False, epochs=2, callbacks=[inner, hook, last], verbose=0)
    trial = closed(hook)
    every = list(range(2 * BATCHES))
    assert trial.tensor("loss").steps(modes.TRAIN) == trial.steps(modes.TRAIN) == every
    np.testing.assert_allclose([trial.tensor("loss").value(step, modes.TRAIN) for step in every], logged, rtol=1e-6)
    assert len(trial.steps(modes.EVAL)) == 2 * BATCHES * BATCHES
    if tensors:
        assert trial.tensor("gradients/fc1/kernelGrad").steps(modes.TRAIN) == every


@pytest.mark.parametrize("after", ["evaluate", "fit"])
def test_what_runs_after_a_fit_that_failed_is_no_step_of_it(make_hook: Make, after: str) -> None:
    def fail(batch: int, logs: Any) -> None:
        if batch == 1:
            raise ValueError("stop")

    model, (x, y) = kt.small(), kt.data(BATCHES)
    hook = make_hook(include_collections=["weights", "gradients"], save_config=SaveConfig(save_interval=1))
    failing = keras.callbacks.LambdaCallback(on_train_batch_begin=fail)
    with pytest.raises(ValueError, match="stop"):
        model.fit(x, y, batch_size=kt.BATCH, callbacks=[hook, failing], verbose=0)
    getattr(model, after)(x, y, batch_size=kt.BATCH, callbacks=[hook] if after == "evaluate" else [], verbose=0)
    assert hasattr(model.train_function, "original") == (after == "fit")
    trial = closed(hook)
    assert trial.steps(modes.TRAIN) == [0]
    assert trial.steps(modes.EVAL) == (list(range(BATCHES)) if after == "evaluate" else [])


def test_gradients_are_saved_if_another_callback_calls_the_hook(make_hook: Make) -> None:
    class Wrapper(keras.callbacks.Callback):
        """A callback that passes each call to the hook."""

        def __getattribute__(self, name: str) -> Any:
            return getattr(hook, name)

    hook = make_hook(include_collections=["gradients"], save_config=SaveConfig(save_interval=1))
    model, (x, y) = kt.small(), kt.data(BATCHES)
    for callback in (hook, Wrapper()):
        model.fit(x, y, batch_size=kt.BATCH, callbacks=[callback], verbose=0)
    assert closed(hook).tensor("gradients/fc1/kernelGrad").steps(modes.TRAIN) == list(range(2 * BATCHES))


def test_a_loop_that_calls_the_callbacks_itself_trains_and_saves_its_losses(make_hook: Make) -> None:
    hook, model, losses = make_hook(save_all=True), kt.small(), []
    callbacks = keras.callbacks.CallbackList([hook], model=model)
    callbacks.on_train_begin()
    for number in range(BATCHES):
        callbacks.on_train_batch_begin(number)
        losses.append(model.train_on_batch(*kt.data(1, number), return_dict=True)["loss"])
        callbacks.on_train_batch_end(number, {"loss": losses[-1]})
    callbacks.on_train_end()
    saved = closed(hook).tensor("loss").values(modes.TRAIN)
    assert {step: float(value) for step, value in saved.items()} == dict(enumerate(map(float, losses)))


def test_two_hooks_of_one_fit_are_a_warning(make_hook: Make, tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    hooks = [make_hook(str(tmp_path / name), include_collections=["gradients"]) for name in "ab"]
    model, (x, y) = kt.small(), kt.data(BATCHES)
    model.fit(x, y, batch_size=kt.BATCH, callbacks=hooks, verbose=0)
    assert [record.getMessage() for record in caplog.records] == [
        "another hook observes this model; from now on it saves only losses, metrics and variables; pass one hook to "
        "`callbacks`"
    ]
    assert [bool(closed(hook).tensor_names(collection="gradients")) for hook in hooks] == [False, True]


def test_torch_compiles_again_after_saved_steps_of_two_threads_overlap() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch._dynamo")  # which a model with jit_compile=True imports on the torch backend
    graphs: list[Any] = []
    step = torch.compile(lambda x: x + 1, backend=lambda graph, _: graphs.append(graph) or graph.forward)
    first, second = uncompiled(), uncompiled()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    step(torch.ones(1))
    assert not graphs
    second.__exit__(None, None, None)
    step(torch.ones(1))
    assert len(graphs) == 1
