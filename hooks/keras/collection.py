"""A collection that accepts parts of a Keras model. It does not import Keras, because sessions use it too."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tensortrial.config.collection import Collection as CoreCollection
from tensortrial.errors import ConfigurationError

from ..core.log import logger
from .names import Names


class Collection(CoreCollection):
    """A collection that also accepts layers, variables and tensors of a Keras model."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._layers: list[tuple[Any, bool, bool]] = []
        self._variables: list[Any] = []
        self._warned_of: set[str] = set()

    def add(self, tensor: Any) -> None:
        """Include a variable of the model, the symbolic output of one of its layers, a name, or several of them.

        Args:
            tensor: One of them, or a list, tuple or set.

        Raises:
            ConfigurationError: It is something else, such as a tensor of the training loop.
        """
        if isinstance(tensor, list | tuple | set | frozenset):
            for each in tensor:
                self.add(each)
        elif isinstance(tensor, str):
            self.add_tensor_names([tensor])
        elif not self._add_part(tensor):
            raise ConfigurationError(
                f"Collection.add takes a variable, the symbolic output of a layer, or a name, got "
                f"{type(tensor).__name__}; to save a tensor of the training loop, call hook.save_tensor"
            )

    def _add_part(self, tensor: Any) -> bool:
        """Include a variable or the symbolic output of a layer. Return whether it is one."""
        layer = _layer_of(tensor)
        if layer is not None:
            self._layers.append((layer, False, True))
        elif hasattr(tensor, "assign"):
            self._variables.append(tensor)
        else:
            return False
        return True

    def add_keras_layer(self, layer: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Include the inputs of a layer of the model, its outputs, or both.

        Args:
            layer: A Keras layer. It must be part of the model when training begins.
            inputs: Save what the layer is called with.
            outputs: Save what the layer returns.

        Raises:
            ConfigurationError: `layer` is not a Keras layer.
        """
        if not (hasattr(layer, "call") and hasattr(layer, "get_weights")):
            raise ConfigurationError(f"add_keras_layer takes a Keras layer, got {type(layer).__name__}")
        self._layers.append((layer, inputs, outputs))

    @property
    def is_empty(self) -> bool:
        """True if the collection can never match a tensor."""
        return super().is_empty and not self._layers and not self._variables

    def resolve(self, names: Names) -> None:
        """Replace layers and variables by the names of their tensors.

        Layers and variables of other models are logged and kept, because they may belong to the next model.
        """
        layers, self._layers = self._layers, []
        for layer, inputs, outputs in layers:
            path = names.path(layer)
            if not path:
                self._layers.append((layer, inputs, outputs))
                self._warn_of_unknown(f"layer {layer.name!r}", sorted(filter(None, names.layers.values())))
                continue
            parts = [("inputs", inputs), ("outputs", outputs)]
            self.include(f"^{re.escape(path)}/{part}(_|$)" for part, included in parts if included)
        variables, self._variables = self._variables, []
        for variable in variables:
            found = [weight.name for weight in names.weights if weight.variable is variable]
            if not found:
                self._variables.append(variable)
                self._warn_of_unknown(f"variable {variable.name!r}", [weight.name for weight in names.weights])
            self.add_tensor_names(found)

    def forget_parts(self) -> None:
        """Release all layers and variables."""
        self._layers, self._variables = [], []

    def _warn_of_unknown(self, part: str, present: Iterable[str]) -> None:
        if part in self._warned_of:
            return
        self._warned_of.add(part)
        logger.warning(
            "collection %r: %s is not part of the model that is trained, which has %s; if it belongs to another model, "
            "call hook.register_model(model) first",
            self.name,
            part,
            ", ".join([*present][:10]),
        )


def _layer_of(tensor: Any) -> Any:
    """Return the layer whose symbolic output this is, or None."""
    history = getattr(tensor, "_keras_history", None)
    return getattr(history, "operation", getattr(history, "layer", None))
