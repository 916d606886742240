"""The tensors of one step of a Keras model, collected while the step runs eagerly or is traced.

Layers, the model's loss and the optimizers are observed only during that time. A traced step returns the tensors as
additional results, so that it stays a graph, compiled by XLA or not. Steps that save nothing cost nothing.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from ..core.log import logger
from ..core.recorder import Recorder, guarded
from .attention import AttentionCalls
from .backend import dense, graph, kept, loss_scale, unscaled
from .call_order import CallOrder
from .layer_calls import observe_calls_in_all_threads
from .names import Counter, Names, dense_parts, layer_inputs, layer_outputs, tensors_in
from .patches import Wrap, patched
from .routers import router_tensors

# Models may share an optimizer, so only one step at a time is observed.
_observing = threading.RLock()


class StepTensors(threading.local):
    """The tensors of a step by name.

    Each replica has its own tensors, because it is traced in its own thread.
    """

    def __init__(self, recorder: Recorder, names: Names, wanted: Callable[[str], bool]) -> None:
        self.recorder = recorder
        self._names, self._wanted = names, wanted
        self._warned = False
        self.begin()

    @contextmanager
    def observing(self, optimizers: Iterable[Any]) -> Iterator[None]:
        """Observe the model's layers, its loss and the optimizers inside the block."""
        with _observing, ExitStack() as stack:
            stack.enter_context(observe_calls_in_all_threads(self))
            stack.enter_context(patched(self._names.model, "compute_loss", self._wrap_loss))
            for optimizer in optimizers:
                if hasattr(optimizer, "apply"):
                    stack.enter_context(patched(optimizer, "apply", self._wrap_apply(optimizer)))
                else:
                    stack.enter_context(patched(optimizer, "apply_gradients", self._wrap_apply_gradients))
            yield

    def begin(self) -> None:
        """Begin a step without tensors."""
        self._tensors: dict[str, Any] = {}
        self._out_of_reach: set[str] = set()
        self._has_loss = False
        self._counter = Counter()
        self._calls = CallOrder()
        self._attention = AttentionCalls(self.recorder)
        self._graph = graph()

    def end(self, data: Any = None) -> dict[str, Any]:
        """Return the tensors of the step. `data` are its inputs and labels, if they are known."""
        self._complete(data)
        tensors, self._tensors = self._tensors, {}
        return tensors

    # The calls of layers.

    @guarded
    def before_call(self, layer: Any, outermost: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Collect the inputs of one of the model's layers."""
        self._attention.begin(layer, outermost, args, kwargs)
        path = self._names.path(layer)
        if path is not None:
            self._calls.add(layer)
            for name, value, numbered in layer_inputs(path, args, kwargs):
                self._add_all(name, value, numbered)

    @guarded
    def after_call(self, layer: Any, outermost: bool, output: Any) -> None:
        """Collect the outputs of one of the model's layers."""
        path = self._names.path(layer)
        if path is not None:
            self._add_all(*layer_outputs(path, output))
            for name, tensor in router_tensors(self.recorder, path, output, self._is_due):
                self._add(self._counter.next(name), tensor)
        for name, tensor in self._attention.end(layer, path, output, self._is_due):
            self._add(self._counter.next(name), tensor)

    # The tensors that the step computes.

    def _is_due(self, name: str, source: Any) -> bool:
        return self._is_reachable(source) and self._wanted(name)

    @guarded
    def _add_loss(self, compute: Callable[..., Any], args: Any, kwargs: Any, loss: Any) -> None:
        # A model's own `compute_loss` may have other arguments than that of Keras.
        arguments = inspect.signature(compute).bind(*args, **kwargs).arguments
        if "y" in arguments:
            self._has_loss = True
            self._add_all("labels", arguments["y"], numbered=True)
        self._add_all("batch_loss", loss)

    @guarded
    def _add_gradients(self, gradients: Iterable[Any], variables: Iterable[Any], scale: Any = None) -> None:
        # All of them are passed at once, in any order.
        pairs = ((each, self._names.by_variable.get(id(own))) for each, own in zip(gradients, variables, strict=True))
        known = ((each, weight) for each, weight in pairs if each is not None and weight is not None)
        for gradient, weight in self._calls.backward(known):
            name = weight.gradient
            # A train_step may also train variables that are not `trainable`.
            self.recorder.collections.add_gradient(name, weight.name)
            if self._wanted(name):
                value = dense(gradient)
                if not self._is_reachable(value):
                    self._out_of_reach.add(name)
                    continue
                self._add(name, value if scale is None else unscaled(value, scale))

    def _add_all(self, name: str, value: Any, numbered: bool = False) -> None:
        for key, tensor in tensors_in(value):
            full = self._counter.next(name, key, numbered)
            for part, each in dense_parts(full, tensor):
                if self._is_reachable(each):
                    self._add(part, each)
                # Keras also calls layers in graphs from which it only reads shapes.
                elif not each.graph.name.startswith("scratch_graph"):
                    self._out_of_reach.add(f"{name}_{key}" if key else name)

    def _add(self, name: str, tensor: Any) -> None:
        if self._wanted(name):
            self._tensors[name] = kept(tensor)

    def _is_reachable(self, tensor: Any) -> bool:
        return getattr(tensor, "graph", self._graph) is self._graph

    @guarded
    def _complete(self, data: Any) -> None:
        if not self._has_loss and isinstance(data, tuple) and len(data) > 1:
            # The user's own train_step, which computes its loss itself.
            self._add_all("labels", data[1], numbered=True)
        lost = [name for name in sorted(self._out_of_reach) if self._wanted(name)]
        if lost and not self._warned:
            self._warned = True
            logger.warning("tensors inside a loop or a branch of the graph are not saved: %s", ", ".join(lost))

    # Wrappers of the methods of the model and its optimizers.

    def _wrap_loss(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        def observed(*args: Any, **kwargs: Any) -> Any:
            loss = compute(*args, **kwargs)
            self._add_loss(compute, args, kwargs, loss)
            return loss

        return observed

    def _wrap_apply(self, optimizer: Any) -> Wrap:
        def wrap(apply: Callable[..., Any]) -> Callable[..., Any]:
            def observed(grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> Any:
                gradients = list(grads)
                variables = list(optimizer._trainable_variables if trainable_variables is None else trainable_variables)
                # For mixed precision an optimizer receives scaled gradients: float16 would lose the small ones.
                self._add_gradients(gradients, variables, loss_scale(optimizer))
                return apply(gradients, None if trainable_variables is None else variables)

            return observed

        return wrap

    def _wrap_apply_gradients(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        def observed(grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
            pairs = list(grads_and_vars)
            self._add_gradients([gradient for gradient, _ in pairs], [variable for _, variable in pairs])
            return apply(pairs, *args, **kwargs)

        return observed
