"""The collection of the TensorFlow hooks, which accepts tensors of a graph and parts of a Keras model."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration

from .collection import Collection as KerasCollection


class Collection(KerasCollection):
    """A collection that also accepts tensors of a graph, and layers of Keras."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.added: set[str] = set()
        """The names of tensors that were passed as objects, and so exist in some graph."""

    def add(self, tensor: Any) -> None:
        """Include a tensor of a graph, a variable, the outputs of an operation or of a Keras layer, or several of them.

        Args:
            tensor: One of them, or a list, tuple or set. A variable may belong to a distribution strategy.

        Raises:
            ConfigurationError: It is something else.
            InvalidCollectionConfiguration: It is an operation without outputs.
        """
        if isinstance(tensor, (list, tuple, set, frozenset)):
            for each in tensor:
                self.add(each)
        elif isinstance(tensor, tf.Operation):
            if not tensor.outputs:
                raise InvalidCollectionConfiguration(
                    self.name,
                    f"the operation {tensor.name!r} has no output tensor; add an operation or a tensor with a value",
                )
            self.add(list(tensor.outputs))
        elif isinstance(tensor, tf.Variable):
            self._add_part(tensor)  # in case it belongs to a Keras model
            self._add_name(_name_of(tensor))
        elif not self._add_part(tensor):
            self._add_name(_name_of(tensor))

    def _add_name(self, name: str) -> None:
        self.added.add(name)
        self.add_tensor_names([name])


def _name_of(tensor: Any) -> str:
    if isinstance(tensor, (tf.SparseTensor, tf.IndexedSlices)):
        return _name_of(tensor.values)
    if tf.is_tensor(tensor) or isinstance(tensor, tf.Variable):
        try:
            return str(tensor.name)
        except AttributeError as exc:
            raise ConfigurationError(
                f"Collection.add takes tensors of a graph, got one without a name: {tensor}; "
                "to save an eager tensor, call hook.save_tensor"
            ) from exc
    raise ConfigurationError(
        f"Collection.add takes tensors, variables and operations of TensorFlow, got {tensor!r:.100}"
    )
