"""Image classifiers of keras.applications, without trained weights, with images of 32 x 32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
import tensortrial.hooks.tensorflow as tt  # noqa: E402
from tensortrial import create_trial  # noqa: E402

BATCH = 2
STEPS = 20
SAVED = (0, 1, 19)
# A power of two: a product with it is exact, so that a gradient can be checked by the update, to the bit.
RATE = 2.0**-7
CASES = {
    "MobileNet": {"alpha": 0.25, "dropout": 0.0},
}


class Weights(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps the loss of each batch, and the weights before and after those that are saved."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, list[Any]] = {}
        self.after: dict[int, list[Any]] = {}
        self.losses: list[bytes] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch in SAVED:
            self.before[batch] = self.model.get_weights()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.losses.append(np.float64(logs["loss"]).tobytes())
        if batch in SAVED:
            self.after[batch] = self.model.get_weights()


def images() -> tuple[Any, Any]:
    numbers = np.random.default_rng(0)
    return numbers.standard_normal((STEPS * BATCH, 32, 32, 3)).astype("float32"), numbers.integers(
        4, size=STEPS * BATCH
    )


def made(name: str) -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    make = getattr(keras.applications, name)
    model = make(input_shape=(32, 32, 3), weights=None, classes=4, **CASES[name])
    model.compile(keras.optimizers.SGD(RATE), "sparse_categorical_crossentropy", jit_compile=False)
    return model


def trained(name: str, *callbacks: Any) -> tuple[Any, Weights]:
    model, weights = made(name), Weights()
    x, y = images()
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[*callbacks, weights])
    return model, weights


def same(found: Any, expected: Any) -> bool:
    return found.shape == expected.shape and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_plain_keras(name: str, tmp_path: Path) -> None:
    plain_model, plain = trained(name)
    when = tt.SaveConfig(save_steps=list(SAVED), end_step=0)
    hook = tt.KerasHook(tmp_path / "run", save_all=True, save_config=when)
    model, seen = trained(name, hook)
    hook.close()
    assert seen.losses == plain.losses
    assert all(map(same, model.get_weights(), plain_model.get_weights()))
    trial = create_trial(tmp_path / "run")
    for step in SAVED:
        check_weights(model, trial, step, seen)
        check_layers(name, model, trial, step, seen)


def check_weights(model: Any, trial: Any, step: int, seen: Weights) -> None:
    trainable = {id(each) for each in model.trainable_variables}
    gradients = 0
    for variable, before, after in zip(model.weights, seen.before[step], seen.after[step], strict=True):
        layer, leaf = variable.path.rsplit("/", 1)
        value = trial.tensor(f"{layer}/weights/{layer}/{leaf}:0").value(step, tt.modes.TRAIN)
        assert same(value, before), f"{variable.path} at step {step}"
        if id(variable) in trainable:
            gradient = trial.tensor(f"gradients/{layer}/{leaf}Grad").value(step, tt.modes.TRAIN)
            assert same(before - gradient * np.float32(RATE), after), f"gradient of {variable.path} at step {step}"
            gradients += 1
    saved = trial.tensor_names(step=step, mode=tt.modes.TRAIN, collection="gradients")
    assert len(saved) == gradients > 10


def check_layers(name: str, model: Any, trial: Any, step: int, seen: Weights) -> None:
    """Compare what layers gave with what a copy of the model gives, computed apart: nearly the same."""
    copy = made(name)
    copy.set_weights(seen.before[step])
    layers = copy.layers[1:]
    inner = keras.Model(copy.input, [layer.output for layer in layers])
    batch = slice(step * BATCH, (step + 1) * BATCH)
    for layer, original, expected in zip(
        layers, model.layers[1:], inner(images()[0][batch], training=True), strict=True
    ):
        found = trial.tensor(f"{original.name}/outputs").value(step, tt.modes.TRAIN)
        np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-3, err_msg=f"{layer.name} at step {step}")
    assert same(trial.tensor("model_inputs_0").value(step, tt.modes.TRAIN), images()[0][batch])
