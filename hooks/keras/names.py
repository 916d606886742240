"""The names of a Keras model's tensors.

    <layer>/weights/<layer>/kernel:0    gradients/<layer>/kernelGrad    <layer>/inputs    <layer>/outputs

A layer of a nested model is named by its path, `encoder/dense`. The names are the same in Keras 2 and Keras 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tensortrial.config.collection import CollectionKeys

from ..library.unique_names import take_name

# Keras' own arguments of a call, which are not inputs of the layer.
_NOT_INPUTS = frozenset({"training", "mask"})


@dataclass(frozen=True, slots=True)
class Weight:
    """A variable of a layer."""

    name: str
    gradient: str
    """The name of its gradient."""
    collection: str
    """The collection of the variable: weights or biases."""
    variable: Any
    layer: int | None = None
    """The id of its layer; None if the layer is unknown."""


class Names:
    """The names of one model's current layers and variables."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.layers: dict[int, str] = {}
        """Paths of layers by their id; the path of the model itself is empty."""
        self.by_variable: dict[int, Weight] = {}
        """The variables by their id."""
        self._taken: set[str] = set()
        self._visit(model, "")

    @property
    def weights(self) -> list[Weight]:
        """The variables, in the order of their layers."""
        return list(self.by_variable.values())

    def path(self, layer: Any) -> str | None:
        """Return the path of a layer, or None if the layer is not part of the model."""
        return self.layers.get(id(layer))

    def same(self, other: Names) -> bool:
        """Return whether another `Names` has the same model, layers and variables."""
        is_same = self.model is other.model and self.layers == other.layers
        return is_same and self.by_variable.keys() == other.by_variable.keys()

    def trained(self) -> list[Weight]:
        """Return the variables that training updates now."""
        # In Keras 2, the variables of a frozen layer stay `trainable`.
        trained = {id(variable) for variable in weights_of(self.model, "trainable_weights")}
        return [weight for number, weight in self.by_variable.items() if number in trained]

    def candidates(self) -> Iterator[str]:
        """Yield the names of tensors that a step may compute, other than losses, metrics and variables."""
        for path in self.layers.values():
            if path:
                yield from (f"{path}/inputs", f"{path}/outputs", f"{path}/inputs_1", f"{path}/outputs_1")
        yield from (weight.gradient for weight in self.trained())
        yield from ("model_inputs_0", "labels_0", "predictions_0", "batch_loss")

    def _visit(self, layer: Any, path: str) -> set[int]:
        """Name a layer and its contents. Return the ids of its variables."""
        if id(layer) in self.layers:
            return {id(each) for each in weights_of(layer)}
        self.layers[id(layer)] = path
        inner: set[int] = set()
        for child in layer._flatten_layers(include_self=False, recursive=False):
            known = self.layers.get(id(child))
            inner |= self._visit(child, take_name(self._taken, _joined(path, child.name)) if known is None else known)
        for variable in weights_of(layer):
            if id(variable) not in inner and id(variable) not in self.by_variable:
                self._name(variable, path or layer.name, id(layer))
            inner.add(id(variable))
        return inner

    def _name(self, variable: Any, path: str, layer: int) -> None:
        leaf = str(variable.name).rpartition("/")[2].partition(":")[0]
        name = take_name(self._taken, f"{path.partition('/')[0]}/weights/{path}/{leaf}", ":0")
        gradient = take_name(self._taken, f"gradients/{path}/{leaf}Grad")
        collection = CollectionKeys.BIASES if "bias" in leaf else CollectionKeys.WEIGHTS
        self.by_variable[id(variable)] = Weight(name, gradient, collection, variable, layer)


class ScheduledRate:
    """The learning rate of a schedule. It is computed when it is read, because no variable holds it."""

    def __init__(self, schedule: Any, optimizer: Any) -> None:
        self._schedule, self._optimizer = schedule, optimizer

    def read_value(self) -> Any:
        """Return the learning rate of the next step."""
        return self._schedule(self._optimizer.iterations)


class VariableNaming:
    """The naming of optimizers' variables and of weights that a tape watches. A subclass may change it."""

    def optimizer_variables(self, collections: Any, optimizers: Iterable[Any]) -> list[tuple[str, Any]]:
        """Return the variables of optimizers with their names, such as `optimizer/adam/dense_kernel_momentum:0`.

        The learning rate is included, even if Keras does not count it as a variable.

        Args:
            collections: The collections of the hook, to which names that no pattern matches are added.
            optimizers: Optimizers of Keras.
        """
        counter = Counter()
        found = []
        for optimizer in optimizers:
            variables = optimizer.variables
            variables = list(variables() if callable(variables) else variables)
            for name, variable in [*((_path(each), each) for each in variables), *_learning_rate(optimizer, variables)]:
                found.append((f"optimizer/{counter.next(name)}:0", variable))
        return found

    def tape_weight(self, name: str) -> str:
        """Return the name of a weight that a tape watches, from its name in `fit`."""
        return name


def _learning_rate(optimizer: Any, variables: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    # An optimizer for mixed precision has the learning rate of its inner optimizer.
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    iterations = getattr(optimizer, "_iterations", None)
    rate = getattr(optimizer, "_learning_rate", None)
    rate = rate if is_schedule(rate) else getattr(optimizer, "learning_rate", None)
    if iterations is None or any(rate is each for each in variables):
        return
    folder, slash, _ = _path(iterations).rpartition("/")
    if is_schedule(rate):
        yield f"{folder}{slash}learning_rate", ScheduledRate(rate, optimizer)
    elif hasattr(rate, "assign"):
        yield f"{folder}{slash}learning_rate", rate


def is_schedule(rate: Any) -> bool:
    """Return whether a learning rate is a schedule."""
    return callable(rate) and hasattr(rate, "get_config")


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name).removesuffix(":0")


def is_built(model: Any) -> bool:
    """Return whether all layers of a model have their variables."""
    return all(getattr(layer, "built", True) for layer in model._flatten_layers())


def tensors_in(value: Any, inside: tuple[int, ...] = ()) -> Iterator[tuple[str | None, Any]]:
    """Yield the tensors in the inputs or outputs of a layer, each with its key if a dictionary holds it.

    `inside` are the ids of the structures around `value`. One that contains itself is skipped.
    """
    if id(value) in inside:
        return
    inside = (*inside, id(value))
    if isinstance(value, Mapping):
        for key, each in value.items():
            for inner, tensor in tensors_in(each, inside):
                yield f"{key}_{inner}" if inner else str(key), tensor
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each, inside)
    elif hasattr(value, "shape") and hasattr(value, "dtype") and type(value).__name__ != "KerasTensor":
        yield None, value


def layer_inputs(path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Yield the arguments of a layer's call, with their name and whether also the first tensor has a number."""
    name, numbered = (f"{path}/inputs", False) if path else ("model_inputs", True)
    yield name, args, numbered
    yield name, {key: value for key, value in kwargs.items() if key not in _NOT_INPUTS}, numbered


def layer_outputs(path: str, output: Any) -> tuple[str, Any, bool]:
    """Return the output of a layer's call, with its name and whether also the first tensor has a number."""
    return (f"{path}/outputs", output, False) if path else ("predictions", output, True)


def dense_parts(name: str, tensor: Any) -> Iterator[tuple[str, Any]]:
    """Yield the dense tensors that a tensor consists of, each with its name.

    A ragged tensor has values and row splits, a sparse one values, indices and a shape. Any other tensor is yielded
    unchanged.
    """
    if hasattr(tensor, "nested_row_splits"):
        yield f"{name}_values", tensor.flat_values
        for depth, splits in enumerate(tensor.nested_row_splits):
            yield f"{name}_row_splits{f'_{depth}' if depth else ''}", splits
    elif hasattr(tensor, "dense_shape"):
        yield from ((f"{name}_{part}", getattr(tensor, part)) for part in ("values", "indices", "dense_shape"))
    else:
        yield name, tensor


def weights_of(layer: Any, attribute: str = "weights") -> list[Any]:
    """Return the current variables of a layer, or some of them, from an attribute."""
    try:
        return list(getattr(layer, attribute))
    except ValueError:
        # A model of Keras 2 raises this until it is built.
        return []


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


class Counter:
    """Unique names for tensors that share a name, such as the outputs of a layer that is called several times."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next(self, name: str, key: str | None = None, numbered: bool = False) -> str:
        """Return the name with its key and a number, which the first use has only if `numbered`."""
        full = f"{name}_{key}" if key else name
        count = self._counts[full] = self._counts.get(full, -1) + 1
        return f"{full}_{count}" if count or (numbered and not key) else full
