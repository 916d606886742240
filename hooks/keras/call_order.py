"""The order in which a step first called the layers of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class CallOrder:
    """The layers of a step in the order of their first calls, from which the order of its gradients follows."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}

    def add(self, layer: Any) -> None:
        """Note the start of a layer's call."""
        self._places.setdefault(id(layer), len(self._places))

    def backward(self, gradients: Iterable[tuple[Any, Any, int | None]]) -> list[tuple[Any, Any]]:
        """Return gradients in the order of a backward pass: from the layer that was called last to the first.

        Each comes with its variable, and with the id of the layer that has the variable. Gradients of one layer, and of
        layers that were not called, are in the reverse order of the argument.
        """
        listed = [(gradient, variable, self._places.get(layer or 0, -1)) for gradient, variable, layer in gradients]
        listed.reverse()
        listed.sort(key=lambda each: -each[2])
        return [(gradient, variable) for gradient, variable, _ in listed]
