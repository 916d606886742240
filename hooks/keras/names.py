"""How a Keras model is walked, and what its tensors are called.

    <layer>/weights/<layer>/kernel:0    gradients/<layer>/kernelGrad    <layer>/inputs    <layer>/outputs

A layer of a nested model is called by its path, `encoder/dense`. The names are the same in Keras 2 and Keras 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tensortrial.config.collection import CollectionKeys


@dataclass(frozen=True, slots=True)
class Weight:
    """A variable of a layer."""

    name: str
    gradient: str
    """What its gradient is called."""
    collection: str
    """weights or biases."""
    variable: Any


class Names:
    """What the layers and the variables of one model are called, as it is now."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.layers: dict[int, str] = {}
        """Paths of layers by their id; that of the model itself is empty."""
        self.weights: list[Weight] = []
        self.gradients: dict[int, str] = {}
        """Names of gradients by the id of their variable."""
        self._taken: set[str] = set()
        self._visit(model, "")

    def path(self, layer: Any) -> str | None:
        """The path of a layer; None if it is none of the model's."""
        return self.layers.get(id(layer))

    def same(self, other: Names) -> bool:
        """Whether these are the names of the same model with the same layers and variables."""
        return self.model is other.model and self.layers == other.layers and self.gradients == other.gradients

    def candidates(self) -> Iterator[str]:
        """What a step of the model may bring beside losses, metrics and variables."""
        for path in self.layers.values():
            if path:
                yield from (f"{path}/inputs", f"{path}/outputs", f"{path}/inputs_1", f"{path}/outputs_1")
        yield from self.gradients.values()
        yield from ("model_inputs_0", "labels_0", "predictions_0", "batch_loss")

    def _visit(self, layer: Any, path: str) -> set[int]:
        """Name a layer with all that it holds; gives the ids of its variables."""
        if id(layer) in self.layers:
            return {id(each) for each in _weights(layer)}
        self.layers[id(layer)] = path
        inner: set[int] = set()
        for child in layer._flatten_layers(include_self=False, recursive=False):
            known = self.layers.get(id(child))
            inner |= self._visit(child, self._unique(_joined(path, child.name)) if known is None else known)
        for variable in _weights(layer):
            if id(variable) not in inner and id(variable) not in self.gradients:
                self._name(variable, path or layer.name)
            inner.add(id(variable))
        return inner

    def _name(self, variable: Any, path: str) -> None:
        leaf = _leaf(variable)
        name = self._unique(f"{path.partition('/')[0]}/weights/{path}/{leaf}", ":0")
        gradient = self._unique(f"gradients/{path}/{leaf}Grad")
        collection = CollectionKeys.BIASES if "bias" in leaf else CollectionKeys.WEIGHTS
        self.weights.append(Weight(name, gradient, collection, variable))
        self.gradients[id(variable)] = gradient

    def _unique(self, name: str, end: str = "") -> str:
        number, unique = 0, name + end
        while unique in self._taken:
            number += 1
            unique = f"{name}_{number}{end}"
        self._taken.add(unique)
        return unique


class ScheduledRate:
    """The learning rate of an optimizer that follows a schedule: no variable holds it, it is computed when read."""

    def __init__(self, schedule: Any, optimizer: Any) -> None:
        self._schedule, self._optimizer = schedule, optimizer

    def read_value(self) -> Any:
        """Return the learning rate of the step to come."""
        return self._schedule(self._optimizer.iterations)


def optimizer_variables(optimizers: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """The variables of optimizers with their names: `optimizer/adam/dense_kernel_momentum:0`. The learning rate is one
    of them, also where Keras does not count it among them."""
    seen: dict[str, int] = {}
    for optimizer in {id(each): each for each in optimizers if each is not None}.values():
        variables = optimizer.variables
        variables = list(variables() if callable(variables) else variables)
        for name, variable in [*((_path(each), each) for each in variables), *_learning_rate(optimizer, variables)]:
            count = seen[name] = seen.get(name, -1) + 1
            yield f"optimizer/{name}{f'_{count}' if count else ''}:0", variable


def _learning_rate(optimizer: Any, variables: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    # An optimizer for mixed precision has that of the one inside.
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    iterations = getattr(optimizer, "_iterations", None)
    rate = getattr(optimizer, "_learning_rate", None)
    rate = rate if _is_schedule(rate) else getattr(optimizer, "learning_rate", None)
    if iterations is None or any(rate is each for each in variables):
        return
    folder, slash, _ = _path(iterations).rpartition("/")
    if _is_schedule(rate):
        yield f"{folder}{slash}learning_rate", ScheduledRate(rate, optimizer)
    elif hasattr(rate, "assign"):
        yield f"{folder}{slash}learning_rate", rate


def _is_schedule(rate: Any) -> bool:
    return callable(rate) and hasattr(rate, "get_config")


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name).removesuffix(":0")


def is_built(model: Any) -> bool:
    """Whether all layers of a model have their variables."""
    return all(getattr(layer, "built", True) for layer in model._flatten_layers())


def tensors_in(value: Any, inside: tuple[int, ...] = ()) -> Iterator[tuple[str | None, Any]]:
    """The tensors in what a layer takes or gives, with the keys under which dictionaries hold them. What is in itself,
    and so `inside` of what is being walked, is passed over."""
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


def dense_parts(name: str, tensor: Any) -> Iterator[tuple[str, Any]]:
    """A ragged tensor as its values and the places where rows begin, a sparse one as its values, their indices and the
    shape, each under a name of its own; any other tensor as it is."""
    if hasattr(tensor, "nested_row_splits"):
        yield f"{name}_values", tensor.flat_values
        for depth, splits in enumerate(tensor.nested_row_splits):
            yield f"{name}_row_splits{f'_{depth}' if depth else ''}", splits
    elif hasattr(tensor, "dense_shape"):
        yield from ((f"{name}_{part}", getattr(tensor, part)) for part in ("values", "indices", "dense_shape"))
    else:
        yield name, tensor


def _weights(layer: Any) -> list[Any]:
    """The variables that a layer has by now."""
    try:
        return list(layer.weights)
    except ValueError:
        # So says a model of Keras 2 that is not built yet.
        return []


def _leaf(variable: Any) -> str:
    return str(variable.name).rpartition("/")[2].partition(":")[0]


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


class Counter:
    """Tells apart what comes under one name several times: from layers that are called again, and from structures."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next(self, name: str, key: str | None = None, numbered: bool = False) -> str:
        """The name with its key; with a number too when it comes again, or from the first if `numbered`."""
        full = f"{name}_{key}" if key else name
        count = self._counts[full] = self._counts.get(full, -1) + 1
        return f"{full}_{count}" if count or (numbered and not key) else full
