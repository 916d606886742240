"""The hyperparameters of Keras' optimizers that are numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np


def hyperparameters_of(optimizers: Iterable[Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers among the hyperparameters of optimizers, with names such as `hyperparameters/Adam/beta_1`.

    The learning rate of a schedule is that of the next step.

    Args:
        optimizers: Optimizers of Keras; None is skipped.
    """
    seen: dict[str, int] = {}
    for optimizer in {id(each): each for each in optimizers if each is not None}.values():
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        kind = type(inner).__name__
        count = seen[kind] = seen.get(kind, -1) + 1
        label = f"{kind}_{count}" if count else kind
        numbers = {key: value for key, value in inner.get_config().items() if _is_number(value)}
        numbers["learning_rate"] = _learning_rate(inner)
        for key, value in numbers.items():
            yield f"hyperparameters/{label}/{key}", float(value)


def _learning_rate(optimizer: Any) -> float:
    """Return the learning rate of the next step."""
    # The attribute of Keras 2 is a schedule itself, or the rate of the last step.
    for rate in (getattr(optimizer, "_learning_rate", None), optimizer.learning_rate):
        if callable(rate) and hasattr(rate, "get_config"):
            return float(np.asarray(rate(optimizer.iterations)))
    return float(np.asarray(optimizer.learning_rate))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value)
