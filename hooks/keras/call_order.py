"""The order in which a step first called the layers of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .names import Weight


class CallOrder:
    """The layers of a step in the order of their first calls, from which the order of its gradients follows."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}

    def add(self, layer: Any) -> None:
        """Note the start of a layer's call."""
        self._places.setdefault(id(layer), len(self._places))

    def backward(self, gradients: Iterable[tuple[Any, Weight]]) -> list[tuple[Any, Weight]]:
        """Return gradients in the order of a backward pass: from the layer that was called last to the first.

        Gradients of one layer, and of layers that were not called, are in the reverse order of the argument.
        """
        listed = list(gradients)
        listed.reverse()
        listed.sort(key=lambda each: -self._places.get(each[1].layer or 0, -1))
        return listed
