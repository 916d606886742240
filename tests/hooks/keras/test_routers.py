"""What the routers of mixtures of experts decide, in Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from support import keras_training as kt
from tensortrial import create_trial
from tensortrial.mode import modes

Make = Callable[..., Any]
EXPERTS = 4


def mixture(name: str = "gate", activation: str | None = None) -> Any:
    """A mixture of experts, whose router gives each token logits or probabilities."""
    keras.utils.set_random_seed(0)
    tokens = keras.layers.Input((8, 8))
    chances = keras.layers.Dense(EXPERTS, activation=activation, name=name)(tokens)
    experts = keras.layers.Dense(EXPERTS, name="experts")(tokens)
    mixed = keras.layers.Multiply()([chances, experts])
    return keras.Model(tokens, keras.layers.Dense(10, name="head")(keras.layers.Flatten()(mixed)))


def batch(number: int) -> tuple[Any, Any]:
    x, y = kt.data(1, number)
    return x.reshape(-1, 8, 8), y


def train(hook: Any, model: Any, how: str, steps: int = 3) -> list[Any]:
    """Train, and return the output of the router at each step."""
    router = keras.Model(model.input, model.layers[1].output)
    batches = [batch(number) for number in range(steps)]
    return kt.train(hook, model, how, batches, lambda x: np.asarray(router(x)).reshape(-1, EXPERTS))


@pytest.mark.parametrize("how", ["fit", "fit eagerly", "tape", "tape in a function"])
@pytest.mark.parametrize("activation", [None, "softmax"], ids=["logits", "probabilities"])
def test_load_and_entropy_are_those_of_the_tokens(make_hook: Make, out: str, how: str, activation: str | None) -> None:
    hook = make_hook(include_collections=["health"])
    outputs = train(hook, mixture(activation=activation), how)
    trial = create_trial(out)
    load, entropy = trial.tensor("router/gate/load"), trial.tensor("router/gate/entropy")
    assert load.steps(modes.TRAIN) == entropy.steps(modes.TRAIN) == [0, 1, 2]
    for number, found in enumerate(outputs):
        expected = np.bincount(found.argmax(-1), minlength=EXPERTS) / len(found)
        np.testing.assert_allclose(load.value(number, modes.TRAIN), expected, atol=0.01)
        chances = found if activation else np.exp(found) / np.exp(found).sum(-1, keepdims=True)
        np.testing.assert_allclose(
            entropy.value(number, modes.TRAIN), -(chances * np.log(chances)).sum(-1).mean(), rtol=1e-3
        )


@pytest.mark.parametrize(
    ("name", "options"),
    [("gate", {"save_all": True}), ("gate_proj", {"include_collections": ["health"]})],
    ids=["without health", "another layer"],
)
@pytest.mark.parametrize("how", ["fit", "tape"])
def test_there_are_none_of_other_layers_or_without_health(
    make_hook: Make, out: str, how: str, name: str, options: Any
) -> None:
    train(make_hook(**options), mixture(name), how, steps=1)
    assert create_trial(out).tensor_names(regex="^router/") == []
