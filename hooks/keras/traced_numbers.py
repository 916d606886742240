"""The hyperparameters of optimizers that a traced step of `fit` has as constants.

The traced step reads only variables, such as a learning rate, at each step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..library.identity import IdentityMap

_RATE = "_learning_rate"
"""The attribute with a variable or a schedule; tracing also decides which of them a step uses."""
_Numbers = IdentityMap[Any, dict[str, Any]]
"""The attributes of optimizers by name."""

# Numbers by the model's function and the type of its data. The function may outlive the hook.
_traced = IdentityMap[Any, dict[str, _Numbers]]()
_types = IdentityMap[Any, str]()


class TracedNumbers:
    """A context manager that restores the optimizers' numbers at the function's first call with such data.

    So all traces of a step have the same numbers.

    Args:
        function: The model's own function, which is traced at its first call, and again for data of another type.
        source: The iterator of batches that it is called with.
        optimizers: The optimizers that it may use.
    """

    def __init__(self, function: Any, source: Any, optimizers: list[Any]) -> None:
        self._optimizers = optimizers
        self._numbers = _traced.setdefault(function, {}).setdefault(type_of(source), IdentityMap())
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
    """Forget the numbers that the step itself assigned to an optimizer, as a first step may do."""
    assigned = [name for name, value in numbers.items() if own.get(name) is not value]
    for name in assigned:
        del numbers[name]


def _is_number(name: str, value: Any) -> bool:
    if name.startswith("_"):
        return name == _RATE
    if name == "built":
        # `built` is not a hyperparameter, but True once the variables exist.
        return False
    return value is None or isinstance(value, (bool, int, float, np.number))


def type_of(source: Any) -> str:
    """Return the type of an iterator's batches, which determines the trace that runs."""
    try:
        if source not in _types:
            _types[source] = repr(getattr(source, "element_spec", None))
        return _types[source]
    except TypeError:  # a list of batches
        return ""
