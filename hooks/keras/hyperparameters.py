"""The hyperparameters of Keras' optimizers that are numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .backend import outside_of_graphs, variable_array
from .graph_callback import is_variable
from .names import Counter, ScheduledRate, is_schedule


def present_numbers(optimizers: Iterable[Any]) -> dict[str, float]:
    """Return the current hyperparameters of optimizers by name."""
    return {name: _number(value) for _, found in settings_of(optimizers) for name, value in found.items()}


def settings_of(optimizers: Iterable[Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield optimizers, each with the numbers among its hyperparameters by names such as `hyperparameters/Adam/beta_1`.

    The learning rate may be a variable, or a ScheduledRate, which has the value of the next step.

    Args:
        optimizers: Optimizers of Keras.
    """
    counter = Counter()
    for optimizer in optimizers:
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        label = counter.next(type(inner).__name__)
        # Keras reads its variables for this, which is impossible while a function is traced.
        with outside_of_graphs():
            numbers = {key: np.float64(value) for key, value in inner.get_config().items() if _is_number(value)}
        numbers["learning_rate"] = _learning_rate(inner)
        yield optimizer, {f"hyperparameters/{label}/{key}": value for key, value in numbers.items()}


def _learning_rate(optimizer: Any) -> Any:
    # In Keras 2 the attribute is the schedule, or the rate of the last step.
    for rate in (getattr(optimizer, "_learning_rate", None), optimizer.learning_rate):
        if is_schedule(rate):
            return ScheduledRate(rate, optimizer)
    return optimizer.learning_rate


def _number(value: Any) -> float:
    return float(variable_array(value) if is_variable(value) else np.asarray(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value)
