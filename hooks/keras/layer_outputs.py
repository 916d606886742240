"""What is seen of a Keras model while one of its steps runs eagerly, or is traced.

The taps are there only meanwhile: one around the call of every layer, which passes over all layers but the model's own,
one around the model's loss, and one on each optimizer. A traced step gives what they saw as additional results, so it
runs as a graph, compiled by XLA or not, and costs nothing where nothing is saved.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import keras

from ..core.base_hook import guarded
from ..core.recorder import Recorder, logger
from .backend import dense, graph, kept, loss_scale, unconverted, unscaled
from .names import Counter, Names, dense_parts, tensors_in

# Keras' own arguments of a call; no tensors that a layer works on.
_NOT_INPUTS = frozenset({"training", "mask"})
_ABSENT = object()
# The tap on the calls of layers is one for all, so only one step at a time is watched.
_watching = threading.RLock()


class Taps(threading.local):
    """The tensors that a step brings, by name; of each replica apart, because each is traced by a thread of its own."""

    def __init__(self, recorder: Recorder, names: Names, wanted: Callable[[str], bool]) -> None:
        self.recorder = recorder
        self._names, self._wanted = names, wanted
        self._told = False
        self.begin()

    @contextmanager
    def watching(self, optimizers: Iterable[Any]) -> Iterator[None]:
        """Inside the block the model's layers and the optimizers are tapped; afterwards nothing is left of it."""
        with _watching, ExitStack() as stack:
            stack.enter_context(_replaced(keras.layers.Layer, "__call__", self._around_call))
            stack.enter_context(_replaced(self._names.model, "compute_loss", self._around_loss))
            for optimizer in optimizers:
                if hasattr(optimizer, "apply"):
                    stack.enter_context(_replaced(optimizer, "apply", self._around_apply(optimizer)))
                else:
                    stack.enter_context(_replaced(optimizer, "apply_gradients", self._around_apply_gradients))
            yield

    def begin(self) -> None:
        """A step begins."""
        self._tensors: dict[str, Any] = {}
        self._out_of_reach: set[str] = set()
        self._has_loss = False
        self._counter = Counter()
        self._graph = graph()

    def end(self, data: Any = None) -> dict[str, Any]:
        """What the step brought, of these data if they are known."""
        self._complete(data)
        tensors, self._tensors = self._tensors, {}
        return tensors

    # What is seen.

    @guarded
    def _entered(self, path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        name, numbered = (f"{path}/inputs", False) if path else ("model_inputs", True)
        self._see_all(name, args, numbered)
        self._see_all(name, {key: each for key, each in kwargs.items() if key not in _NOT_INPUTS}, numbered)

    @guarded
    def _left(self, path: str, output: Any) -> None:
        name, numbered = (f"{path}/outputs", False) if path else ("predictions", True)
        self._see_all(name, output, numbered)

    @guarded
    def _computed(self, labels: Any, loss: Any) -> None:
        self._has_loss = True
        self._see_all("labels", labels, numbered=True)
        self._see_all("batch_loss", loss)

    @guarded
    def _applied(self, gradients: Iterable[Any], variables: Iterable[Any], scale: Any = None) -> None:
        for gradient, variable in zip(gradients, variables, strict=True):
            name = self._names.gradients.get(id(variable))
            if name is not None and gradient is not None and self._wanted(name):
                value = dense(gradient)
                if not self._is_reachable(value):
                    self._out_of_reach.add(name)
                    continue
                self._see(name, value if scale is None else unscaled(value, scale))

    def _see_all(self, name: str, value: Any, numbered: bool = False) -> None:
        for key, tensor in tensors_in(value):
            full = self._counter.next(name, key, numbered)
            for part, each in dense_parts(full, tensor):
                if self._is_reachable(each):
                    self._see(part, each)
                # Keras also calls layers in graphs that it only takes shapes from.
                elif not each.graph.name.startswith("scratch_graph"):
                    self._out_of_reach.add(f"{name}_{key}" if key else name)

    def _see(self, name: str, tensor: Any) -> None:
        if self._wanted(name):
            self._tensors[name] = kept(tensor)

    def _is_reachable(self, tensor: Any) -> bool:
        return getattr(tensor, "graph", self._graph) is self._graph

    @guarded
    def _complete(self, data: Any) -> None:
        if not self._has_loss and isinstance(data, tuple) and len(data) > 1:
            # A step of the user's own, which computes its loss by itself.
            self._see_all("labels", data[1], numbered=True)
        lost = [name for name in sorted(self._out_of_reach) if self._wanted(name)]
        if lost and not self._told:
            self._told = True
            logger.warning("what comes inside of a loop or a branch of the graph is not saved: %s", ", ".join(lost))

    # What is put around the model's own functions.

    def _around_call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def tapped(layer: Any, *args: Any, **kwargs: Any) -> Any:
            path = self._names.path(layer)
            if path is None:
                return call(layer, *args, **kwargs)
            self._entered(path, args, kwargs)
            output = call(layer, *args, **kwargs)
            self._left(path, output)
            return output

        return tapped

    def _around_loss(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        def tapped(x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
            loss = compute(x, y, *args, **kwargs)
            self._computed(y, loss)
            return loss

        return tapped

    def _around_apply(self, optimizer: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def around(apply: Callable[..., Any]) -> Callable[..., Any]:
            def tapped(grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> Any:
                gradients = list(grads)
                variables = list(optimizer._trainable_variables if trainable_variables is None else trainable_variables)
                # Gradients come scaled to an optimizer that keeps float16 from running over.
                self._applied(gradients, variables, loss_scale(optimizer))
                return apply(gradients, None if trainable_variables is None else variables)

            return tapped

        return around

    def _around_apply_gradients(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        def tapped(grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
            pairs = list(grads_and_vars)
            self._applied([gradient for gradient, _ in pairs], [variable for _, variable in pairs])
            return apply(pairs, *args, **kwargs)

        return tapped


@contextmanager
def _replaced(owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Have another function under a name inside the block. Past the owner's own `__setattr__`, which may track what it
    is given."""
    put, remove = (
        (type.__setattr__, type.__delattr__) if isinstance(owner, type) else (object.__setattr__, object.__delattr__)
    )
    before = vars(owner).get(name, _ABSENT)
    put(owner, name, unconverted(around(getattr(owner, name))))
    try:
        yield
    finally:
        if before is _ABSENT:
            remove(owner, name)
        else:
            put(owner, name, before)
