"""Real training for the tests of Keras: small networks on scikit-learn's digits, the same on Keras 2 and 3."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits

from tensortrial.mode import modes

BATCH = 32
KERAS_3 = keras.__version__.startswith("3.")


@cache
def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All images, in [0, 1], and their labels."""
    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype("float32"), labels.astype("int32")


def data(batches: int, begin: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Enough for some batches."""
    x, y = digits()
    return x[begin * BATCH : (begin + batches) * BATCH], y[begin * BATCH : (begin + batches) * BATCH]


def classifier_loss() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def compiled(model: Any, optimizer: Any = None, loss: Any = None, **options: Any) -> Any:
    """The model, ready to be fitted; without XLA, which takes longer to compile than a test to train."""
    options.setdefault("metrics", ["accuracy"])
    options.setdefault("jit_compile", False)
    model.compile(optimizer or keras.optimizers.SGD(0.1), loss=loss or classifier_loss(), **options)
    return model


def small(**options: Any) -> Any:
    """A classifier of digits: two layers and the one between."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(16, name="fc1"),
            keras.layers.ReLU(name="relu"),
            keras.layers.Dense(10, name="fc2"),
        ],
        name="net",
    )
    return compiled(model, **options)


def fit(model: Any, batches: int, hook: Any = None, begin: int = 0, **options: Any) -> Any:
    """Train on some batches in their order."""
    x, y = data(batches, begin)
    callbacks = [] if hook is None else [hook]
    return model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=callbacks, **options)


def evaluate(model: Any, batches: int, hook: Any = None, begin: int = 0) -> Any:
    x, y = data(batches, begin)
    callbacks = [] if hook is None else [hook]
    return model.evaluate(x, y, batch_size=BATCH, verbose=0, callbacks=callbacks, return_dict=True)


def train(hook: Any, model: Any, how: str, batches: Iterable[tuple[Any, Any]], look: Callable[[Any], Any]) -> list[Any]:
    """Train on batches, and return what `look` returned of the inputs of each, before the step.

    `how` is "fit", "fit eagerly", "fit with XLA", "tape" or "tape in a function".
    """
    import tensorflow as tf

    optimizer, compute, seen = keras.optimizers.SGD(0.1), classifier_loss(), []
    if how.startswith("fit"):
        compiled(model, optimizer, run_eagerly=how == "fit eagerly", jit_compile=how == "fit with XLA")
    else:
        hook.set_mode(modes.TRAIN)

    def step(x: Any, y: Any) -> None:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = compute(y, model(x, training=True))
        found = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))

    run = tf.function(step) if how == "tape in a function" else step
    for x, y in batches:
        seen.append(look(x))
        if how.startswith("fit"):
            model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[hook])
        else:
            run(tf.constant(x), tf.constant(y))
    hook.close()
    return seen


def gradients(model: Any, x: Any, y: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The gradients of the classifier's loss by layer and variable, from a tape of our own."""
    import tensorflow as tf

    weights = [(layer, weight) for layer in model.layers for weight in layer.trainable_weights]
    with tf.GradientTape() as tape:
        loss = classifier_loss()(y, model(x, training=True))
    found = tape.gradient(loss, [getattr(weight, "value", weight) if KERAS_3 else weight for _, weight in weights])
    names = [f"{layer.name}/{weight.name.rpartition('/')[2].partition(':')[0]}" for layer, weight in weights]
    return {name: np.asarray(tf.convert_to_tensor(each)) for name, each in zip(names, found, strict=True)}
