"""The names of the layers and variables in a training loop that uses a GradientTape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensortrial.config.collection import CollectionKeys

from ...core.recorder import Recorder
from ..collection import Collection
from ..graph_callback import is_variable
from ..names import Names, VariableNaming, Weight, is_built


class TapeNames:
    """The names of the layers and variables of all models in a training loop.

    A variable that belongs to no known model is named by its own path.
    """

    def __init__(self, recorder: Recorder, naming: VariableNaming) -> None:
        self._recorder = recorder
        self._naming = naming
        self._models: list[Names] = []
        self._weights: dict[int, Weight] = {}
        self._taken: set[str] = set()

    @property
    def weights(self) -> list[Weight]:
        """The variables that are known so far."""
        return list({each.name: each for each in self._weights.values()}.values())

    def path(self, layer: Any) -> str | None:
        """Return the path of a layer, empty for a model; None for an unknown layer."""
        return next((path for names in self._models if (path := names.path(layer)) is not None), None)

    def add_model(self, model: Any) -> None:
        """Name the current layers and variables of a model."""
        names = Names(model)
        self._models = [*(each for each in self._models if each.model is not model), names]
        for weight in names.weights:
            self._add(weight)
        if names.weights:
            for collection in self._recorder.collections:
                if isinstance(collection, Collection):
                    collection.resolve(names)

    def lacks(self, model: Any) -> bool:
        """Return whether the model is unknown, or had no variables when it was named."""
        known = next((names for names in self._models if names.model is model), None)
        return self.path(model) is None if known is None else not known.weights and is_built(model)

    def trained(self, variable: Any) -> Weight:
        """Return the names of a variable that has a gradient."""
        weight = self._weight(variable)
        # The gradient is known from then on: a model also has variables without one, such as those of a frozen layer.
        self._recorder.collections.add_gradient(weight.gradient, weight.name)
        return weight

    def _weight(self, variable: Any) -> Weight:
        if id(variable) not in self._weights:
            path = str(getattr(variable, "path", None) or variable.name).partition(":")[0]
            layer, _, leaf = path.rpartition("/")
            name = f"{layer.partition('/')[0]}/weights/{path}" if layer else path
            collection = CollectionKeys.BIASES if "bias" in leaf else CollectionKeys.WEIGHTS
            self._add(Weight(f"{name}:0", f"gradients/{path}Grad", collection, variable))
        return self._weights[id(variable)]

    def forget(self) -> None:
        """Release all models and variables. Their names are not used again."""
        self._models, self._weights = [], {}

    def _add(self, weight: Weight) -> None:
        if id(weight.variable) in self._weights:
            return
        weight = self._unique(replace(weight, name=self._naming.tape_weight(weight.name)))
        inner = getattr(weight.variable, "value", None)
        # Keras 3 wraps the variables of TensorFlow in its own; a loop may use either.
        for variable in (weight.variable, inner) if is_variable(inner) else (weight.variable,):
            self._weights[id(variable)] = weight
        self._recorder.collections.require(weight.collection).add_tensor_names([weight.name])

    def _unique(self, weight: Weight) -> Weight:
        name, gradient, number = weight.name, weight.gradient, 0
        while name in self._taken:
            number += 1
            name, gradient = f"{weight.name.removesuffix(':0')}_{number}:0", f"{weight.gradient}_{number}"
        self._taken.add(name)
        return replace(weight, name=name, gradient=gradient)
