"""`tensortrial demo`."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator
from itertools import pairwise

import click
import numpy as np

from ...config.collection import Collection
from ...config.reduction_config import ReductionConfig
from ...dtypes import Array
from ...errors import RunExists
from ...hooks.plain import Run
from ..console import print_line

_STEPS, _FAULT, _FAULT_STEPS = 300, 200, 20
_INTERVAL = 2
"""The number of steps from one save of tensors to the next."""
_LAYERS = (2, 32, 32, 32, 3)
_BROKEN = 1
"""The layer whose learning rate grows from the step of the fault on."""
_RATE, _GROWTH = 0.2, 1.35
_BATCH = 64
_STATISTICS = ReductionConfig(
    reductions=["min", "max", "mean", "std", "nan_count", "inf_count", "zero_count"],
    norms=["l2"],
    save_raw_tensor=True,
)


@click.command()
@click.argument("folder", default="runs/demo")
def demo(folder: str) -> None:
    """Write a small run to look at.

    It goes into FOLDER, runs/demo by default. A network of numpy learns three spirals. From step 200 on the learning
    rate of one layer grows, so that there is something to find. It takes a second, and no framework is needed.

    \b
    tensortrial demo
    tensortrial diagnose runs/demo
    tensortrial page runs/demo
    """
    try:
        logging.disable()  # of the hook's error, which is printed as a sentence
        failure = _train(folder)
    except RunExists as exc:
        raise click.ClickException(
            f"{folder} holds a run already: name another folder, or delete it by `tensortrial rm {_word(folder)}`"
        ) from exc
    finally:
        logging.disable(logging.NOTSET)
    if failure is not None:
        raise click.ClickException(f"the run was not saved to {folder}: {failure}")
    print_line(f"The run is in {folder}. Look at it by:")
    for command in ("diagnose", "show", "page"):
        print_line(f"  tensortrial {command} {_word(folder)}")


def _word(folder: str) -> str:
    """Return a folder as an argument of a command in a shell."""
    return shlex.quote(f"./{folder}" if folder.startswith("-") else folder)


def _train(folder: str) -> str | None:
    """Train, and return the reason for which the run was not saved, or not completely; None if it was."""
    random = np.random.default_rng(0)
    points, labels = _spirals(random)
    weights = [random.normal(0, (2 / n) ** 0.5, (n, m)) for n, m in pairwise(_LAYERS)]
    biases = [np.zeros(m) for m in _LAYERS[1:]]
    rates = [_RATE] * len(weights)
    with Run(
        folder,
        metadata={"learning_rate": _RATE, "fault": "the learning rate of layer 1 grows"},
    ) as run:
        for name in ("weights", "biases", "gradients", "relu"):
            run.add_collection(Collection(name, reduction_config=_STATISTICS, save_histogram=True))
        for step in range(_STEPS):
            if _FAULT <= step < _FAULT + _FAULT_STEPS:
                rates[_BROKEN] *= _GROWTH
            batch = random.integers(len(points), size=_BATCH)
            with np.errstate(all="ignore"), run.step(step):
                _one_step(run, step, weights, biases, rates, points[batch], labels[batch])
        is_on = run.recorder.active
    return run.recorder.failures.first or (None if is_on else "TENSORTRIAL=0 or USE_SMDEBUG=0 turns every hook off")


def _one_step(
    run: Run,
    step: int,
    weights: list[Array],
    biases: list[Array],
    rates: list[float],
    x: Array,
    labels: Array,
) -> None:
    """Train for one batch, and save scalars, and at every second step tensors before their update."""
    activations = [x]
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        activations.append(np.maximum(activations[-1] @ weight + bias, 0))
    logits = activations[-1] @ weights[-1] + biases[-1]
    logits -= logits.max(axis=1, keepdims=True)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    run.log({"loss": -np.log(shares[rows, labels] + 1e-12).mean(), "lr of layer 1": rates[_BROKEN]})
    run.log({"accuracy": (shares.argmax(axis=1) == labels).mean()})
    shares[rows, labels] -= 1
    for layer, gradient in _backward(weights, activations, shares / len(labels)):
        of_weight = activations[layer].T @ gradient
        if step % _INTERVAL == 0:
            _save(run, f"layer{layer}.weight", weights[layer], "weights")
            _save(run, f"layer{layer}.bias", biases[layer], "biases")
            _save(run, f"gradient/layer{layer}.weight", of_weight, "gradients")
            if layer:
                _save(run, f"layer{layer - 1}.relu_output", activations[layer], "relu")
        weights[layer] = weights[layer] - rates[layer] * of_weight
        biases[layer] = biases[layer] - rates[layer] * gradient.sum(axis=0)


def _save(run: Run, name: str, value: Array, collection: str) -> None:
    run.save_tensor(name, value.astype(np.float32), collections_to_write=collection)


def _backward(weights: list[Array], activations: list[Array], gradient: Array) -> Iterator[tuple[int, Array]]:
    """Yield each layer from the last, with the gradient of its outputs, which is computed before its weight changes."""
    for layer in reversed(range(len(weights))):
        below = gradient @ weights[layer].T
        yield layer, gradient
        gradient = np.where(activations[layer] > 0, below, 0)


def _spirals(random: np.random.Generator) -> tuple[Array, Array]:
    """Return 900 points on three spirals, and the number of the spiral of each."""
    labels = np.repeat(np.arange(3), 300)
    radius = np.tile(np.linspace(0.1, 1, 300), 3)
    angle = 4 * radius + labels * 2 * np.pi / 3 + random.normal(0, 0.1, 900)
    return np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=1), labels
