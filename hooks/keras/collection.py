"""A collection that can be told parts of a Keras model. It needs no Keras: sessions of TensorFlow use it too."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tensortrial.config.collection import Collection as CoreCollection
from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration

from .names import Names


class Collection(CoreCollection):
    """A collection that can also be told layers, variables and tensors of a model."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._layers: list[tuple[Any, bool, bool]] = []
        self._variables: list[Any] = []

    def add(self, tensor: Any) -> None:
        """Include a variable of the model, the symbolic output of one of its layers, a name, or several of them in a
        list, tuple or set."""
        if isinstance(tensor, list | tuple | set | frozenset):
            for each in tensor:
                self.add(each)
        elif isinstance(tensor, str):
            self.add_tensor_names([tensor])
        elif not self._add_part(tensor):
            raise ConfigurationError(
                f"add takes a variable, the output of a layer, or a name, not {type(tensor).__name__}; "
                "a tensor of the training loop is saved by hook.save_tensor"
            )

    def _add_part(self, tensor: Any) -> bool:
        """Include a variable or the symbolic output of a layer; gives whether it is one."""
        layer = _layer_of(tensor)
        if layer is not None:
            self._layers.append((layer, False, True))
        elif hasattr(tensor, "assign"):
            self._variables.append(tensor)
        else:
            return False
        return True

    def add_keras_layer(self, layer: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Include what goes into a layer of the model, what comes out of it, or both."""
        if not (hasattr(layer, "call") and hasattr(layer, "get_weights")):
            raise ConfigurationError(f"add_keras_layer takes a layer of Keras, not {type(layer).__name__}")
        self._layers.append((layer, inputs, outputs))

    @property
    def is_empty(self) -> bool:
        return super().is_empty and not self._layers and not self._variables

    def resolve(self, names: Names) -> None:
        """Turn layers and variables into the names of their tensors. Raises InvalidCollectionConfiguration for one that
        is not the model's."""
        layers, self._layers = self._layers, []
        for layer, inputs, outputs in layers:
            path = names.path(layer)
            if not path:
                raise self._unknown(f"layer {layer.name!r}", sorted(filter(None, names.layers.values())))
            wanted = [("inputs", inputs), ("outputs", outputs)]
            self.include(f"^{re.escape(path)}/{kind}(_|$)" for kind, asked in wanted if asked)
        variables, self._variables = self._variables, []
        for variable in variables:
            found = [weight.name for weight in names.weights if weight.variable is variable]
            if not found:
                raise self._unknown(f"variable {variable.name!r}", [weight.name for weight in names.weights])
            self.add_tensor_names(found)

    def forget_parts(self) -> None:
        """Hold no layer and no variable any more."""
        self._layers, self._variables = [], []

    def _unknown(self, what: str, there: Iterable[str]) -> InvalidCollectionConfiguration:
        known = ", ".join([*there][:10])
        return InvalidCollectionConfiguration(
            self.name,
            f"{what} is not part of the model that is trained, which has {known}; of another model, call "
            "hook.register_model(model) first",
        )


def _layer_of(tensor: Any) -> Any:
    """The layer whose symbolic output this is, if it is one's."""
    history = getattr(tensor, "_keras_history", None)
    return getattr(history, "operation", getattr(history, "layer", None))
