"""The numbers of optimizers that a step of `fit` has had since TensorFlow traced it.

The traced step does not read them again. Only variables, such as a learning rate, are read at each step.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

_RATE = "_learning_rate"
"""A variable or a schedule. Which of them a step has is decided by tracing, too."""
_Numbers = WeakKeyDictionary[Any, dict[str, Any]]
"""The attributes of optimizers by name."""

# By the function of a model and the type of its data. The function may outlive the hook that saw it first.
_traced: WeakKeyDictionary[Any, dict[str, _Numbers]] = WeakKeyDictionary()
_types: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


class TracedNumbers:
    """A context manager that gives optimizers the numbers that they had at the first call of a function with such data.

    So all traces of a step have the same numbers, and they can be read.

    Args:
        function: The model's own function, which is traced at its first call, and again for data of another type.
        source: The iterator of batches that it is called with.
        optimizers: The optimizers that it may use.
    """

    def __init__(self, function: Any, source: Any, optimizers: list[Any]) -> None:
        self._optimizers = optimizers
        self._numbers = _traced.setdefault(function, {}).setdefault(type_of(source), WeakKeyDictionary())
        self._replaced: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        for optimizer in self._optimizers:
            own = vars(optimizer)
            if optimizer not in self._numbers:
                self._numbers[optimizer] = {name: value for name, value in own.items() if _is_number(name, value)}
            for name, value in self._numbers[optimizer].items():
                now = own.get(name)
                if now is not value and _is_number(name, now):
                    object.__setattr__(optimizer, name, value)
                    self._replaced.append((optimizer, name, now))

    def __exit__(self, *exc_info: object) -> None:
        for optimizer in self._optimizers:
            _keep_assigned(vars(optimizer), self._numbers[optimizer])
        for optimizer, name, now in self._replaced:
            if name in self._numbers[optimizer]:
                object.__setattr__(optimizer, name, now)


def _keep_assigned(own: dict[str, Any], numbers: dict[str, Any]) -> None:
    """Forget the numbers that a step has itself assigned to an optimizer, as the first one may."""
    assigned = [name for name, value in numbers.items() if own.get(name) is not value]
    for name in assigned:
        del numbers[name]


def _is_number(name: str, value: Any) -> bool:
    if name.startswith("_"):
        return name == _RATE
    if name == "built":
        # Not a hyperparameter: whether it has its variables.
        return False
    return value is None or isinstance(value, (bool, int, float, np.number))


def type_of(source: Any) -> str:
    """Return the type of the batches of an iterator, on which it depends which trace of a function runs."""
    try:
        if source not in _types:
            _types[source] = repr(getattr(source, "element_spec", None))
        return _types[source]
    except TypeError:  # a list of batches
        return ""
