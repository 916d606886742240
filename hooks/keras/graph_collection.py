"""The collection of the TensorFlow hooks: it can also be told tensors of a graph, and parts of a Keras model."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration

from .collection import Collection as KerasCollection


class Collection(KerasCollection):
    """A collection that can also be told tensors, and layers of Keras."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.added: set[str] = set()
        """The names of tensors that were given themselves, and so exist in some graph."""

    def add(self, tensor: Any) -> None:
        """Include a tensor, a variable (also one of a distribution strategy), what an operation gives, what a layer of
        Keras gives, or each of a list, tuple or set of them.

        Raises ConfigurationError for anything else, InvalidCollectionConfiguration for an operation that gives nothing.
        """
        if isinstance(tensor, (list, tuple, set, frozenset)):
            for each in tensor:
                self.add(each)
        elif isinstance(tensor, tf.Operation):
            if not tensor.outputs:
                raise InvalidCollectionConfiguration(self.name, f"the operation {tensor.name!r} gives no tensor")
            self.add(list(tensor.outputs))
        elif isinstance(tensor, tf.Variable):
            self._add_part(tensor)  # of a Keras model, if it is one's
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
            raise ConfigurationError(f"a collection takes tensors of a graph; this one has no name: {tensor}") from exc
    raise ConfigurationError(f"a collection takes tensors, variables and operations of TensorFlow, not {tensor!r:.100}")
