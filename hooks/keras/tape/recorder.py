"""The recorder of a training loop with gradient tapes: its losses, gradients, variables, and the calls of layers."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import keras

from tensortrial.config.collection import CollectionKeys

from ...core.recorder import guarded
from ..attention import AttentionCalls
from ..backend import IS_TENSORFLOW, Unscaled, dense, graph
from ..call_order import CallOrder
from ..graph_callback import GraphCallback, is_variable
from ..layer_calls import observe_calls_in_this_thread
from ..loss_scaling import observe_scaling
from ..names import Counter, VariableNaming, Weight, dense_parts, layer_inputs, layer_outputs, tensors_in
from ..replicas import LeadingRecorder
from ..routers import router_tensors
from .names import TapeNames


class TapeOwner(ABC):
    """The part of a hook that a TapeRecorder and TapeUpdates need."""

    recorder: LeadingRecorder
    naming: VariableNaming
    tape_names: TapeNames
    tape_seen: bool

    @abstractmethod
    def tape_callback(self) -> GraphCallback | None:
        """Return the callback of the replica that runs or is traced; None in `fit`, or if the replica is not saved."""

    @abstractmethod
    def tape_optimizers(self) -> list[Any]:
        """Return the optimizers whose variables and hyperparameters are saved."""

    @property
    @abstractmethod
    def is_fitting(self) -> bool:
        """True if Keras' own `fit`, `evaluate` or `predict` is under way."""


class TapeRecorder(threading.local):
    """The recorder of one thread's tapes: layers called between enter and exit, and the gradients they compute."""

    def __init__(self, hook: TapeOwner) -> None:
        self._hook = hook
        self.recorder = hook.recorder
        self._names = hook.tape_names
        self._depth = 0
        self._observing = ExitStack()
        self._callback: GraphCallback | None = None
        self._reset()

    def _reset(self) -> None:
        self._seen: dict[str, Any] = {}
        self._recorded: set[str] = set()
        self._counter = Counter()
        self._calls = CallOrder()
        self._attention = AttentionCalls(self.recorder)
        # The losses that optimizers scaled, each as the scaled loss, the loss and the scale.
        self._scalings: list[tuple[Any, Any, Any]] = []

    def forget(self) -> None:
        """Release the tensors of the last step, unless a tape is recording."""
        if not self._depth:
            self._reset()
            self._callback = None

    # Methods that a wrapped tape calls.

    @guarded
    def entered(self) -> None:
        """Begin a step when a tape begins to record, unless another tape records already."""
        self._depth += 1
        if self._depth == 1:
            self._begin()
            callback = self._callback
            if callback is not None and (callback.may_be_due or not self._hook.tape_seen):
                self._observing.enter_context(observe_calls_in_this_thread(self))
                self._observing.enter_context(observe_scaling(self._scaled))

    @guarded
    def exited(self) -> None:
        """Record the inputs and outputs of layers when the outermost tape ends."""
        self._depth -= 1
        if self._depth == 0:
            self._observing.close()
            self._record_seen()

    @guarded
    def computed(self, target: Any, sources: Any, gradients: Any) -> None:
        """Record the gradients that a tape computed, their target as the loss, and the variables."""
        if self._callback is None:
            self._begin()
        callback = self._callback
        if callback is None:
            return
        self._hook.tape_seen = True
        if callback.may_be_due:
            scale = self._scale_of(target)
            values = dict(self._losses(target, scale))
            self._record_variables()
            for gradient, weight in self._gradients(sources, gradients):
                values[weight.gradient] = _without(scale, dense(gradient))
            self._record_variables()
            callback.record_due(values)

    def _gradients(self, sources: Any, gradients: Any) -> list[tuple[Any, Weight]]:
        """Return the gradients with the names of their variables, in the order of a backward pass."""
        import tensorflow as tf

        pairs = zip(tf.nest.flatten(sources), tf.nest.flatten(gradients), strict=True)
        found = [(each, self._names.trained(own)) for own, each in pairs if each is not None and is_variable(own)]
        places = {weight.name: place for place, weight in enumerate(self._names.weights)}
        found.sort(key=lambda each: places[each[1].name])
        return self._calls.backward(found)

    # A step.

    def _begin(self) -> None:
        self._reset()
        self._callback = self._hook.tape_callback()
        if self._callback is not None:
            self._callback.begin_step()
            if self._callback.may_be_due:
                self._record_variables()

    def _losses(self, target: Any, scale: Any) -> Iterator[tuple[str, Any]]:
        before = {id(scaled): loss for scaled, loss, _ in self._scalings}
        for key, tensor in tensors_in(target):
            name = self._counter.next("loss", key)
            self.recorder.collections.require(CollectionKeys.LOSSES).add_tensor_names([name])
            yield name, before[id(tensor)] if id(tensor) in before else _without(scale, tensor)

    @guarded
    def _scaled(self, scaled: Any, loss: Any, scale: Any) -> None:
        import tensorflow as tf

        # The scale's current value, because applying the gradients may change the variable.
        self._scalings.append((scaled, loss, tf.convert_to_tensor(scale)))

    def _scale_of(self, target: Any) -> Any:
        """Return the factor of the target, or of the loss from which it was computed; None without mixed precision."""
        targets = {id(tensor) for _, tensor in tensors_in(target)}
        found = [scale for scaled, _, scale in self._scalings if id(scaled) in targets]
        every = found or [scale for _, _, scale in self._scalings]
        return every[-1] if every else None

    def _record_variables(self) -> None:
        """Record, before the update, the variables that became known since the last call."""
        assert self._callback is not None
        named = [(weight.name, weight.variable) for weight in self._names.weights]
        named += self._hook.naming.optimizer_variables(self.recorder.collections, self._hook.tape_optimizers())
        values = {name: variable for name, variable in named if name not in self._recorded}
        self._recorded.update(values)
        self._callback.record_due(values)

    # Layers.

    @guarded
    def before_call(self, layer: Any, outermost: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Record the inputs of a layer."""
        if outermost and layer.built:
            self._add_model(layer)
        self._calls.add(layer)
        self._attention.begin(layer, outermost, args, kwargs)
        path = self._names.path(layer)
        if path is not None:
            for name, value, numbered in layer_inputs(path, args, kwargs):
                self._see(name, value, numbered)

    @guarded
    def after_call(self, layer: Any, outermost: bool, output: Any) -> None:
        """Record the outputs of a layer."""
        if outermost:
            self._add_model(layer)
        path = self._names.path(layer)
        if path is not None:
            self._see(*layer_outputs(path, output))
            for name, tensor in router_tensors(self.recorder, path, output, self._is_due):
                self._see(name, tensor, numbered=False)
        for name, tensor in self._attention.end(layer, path, output, self._is_due):
            self._see(name, tensor, numbered=False)

    def _is_due(self, name: str, source: Any) -> bool:
        return self.recorder.may_save([name])

    def _add_model(self, layer: Any) -> None:
        """Name a model that runs under the tape and was not registered."""
        if isinstance(layer, keras.Model) and self._names.lacks(layer):
            self._names.add_model(layer)
            self._record_variables()

    def _see(self, name: str, value: Any, numbered: bool) -> None:
        for key, tensor in tensors_in(value):
            for part, each in dense_parts(self._counter.next(name, key, numbered), tensor):
                if _is_dense(each) and self.recorder.may_save([part]):
                    self._seen[part] = each

    def _record_seen(self) -> None:
        seen, self._seen = self._seen, {}
        if self._callback is not None and self._callback.may_be_due:
            building = graph()
            found = {name: each for name, each in seen.items() if getattr(each, "graph", building) is building}
            self._callback.record_due(found)
            # Keras also calls layers in graphs from which it only reads shapes.
            lost = [name for name in seen.keys() - found if not seen[name].graph.name.startswith("scratch_graph")]
            if lost:
                self.recorder.failures.warn_once(
                    "tensors inside a loop, a branch or another function are not saved: %s", ", ".join(sorted(lost))
                )


def _without(scale: Any, tensor: Any) -> Any:
    return tensor if scale is None else Unscaled(tensor, scale)


def _is_dense(tensor: Any) -> bool:
    """Return whether a value is a dense tensor of numbers: not sparse, ragged or text."""
    if not IS_TENSORFLOW:
        return True
    import tensorflow as tf

    return not tf.is_tensor(tensor) or (isinstance(tensor, tf.Tensor) and tensor.dtype != tf.string)
