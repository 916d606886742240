"""What is saved of a training loop of one's own, by its GradientTape.

with hook.wrap_tape(tf.GradientTape()) as tape:
    loss = loss_object(labels, model(images, training=True))
gradients = tape.gradient(loss, model.trainable_variables)
hook.save_tape_logs({"labels": labels})
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras

from tensortrial.config.collection import CollectionKeys
from tensortrial.errors import ConfigurationError

from ..core.base_hook import guarded
from ..core.recorder import Recorder
from ..core.replicas import LeadingRecorder
from .backend import IS_TENSORFLOW, Unscaled, dense, graph, unconverted
from .collection import Collection
from .graph_callback import Bridge, compiled_by_xla, is_variable
from .layer_calls import watching_calls
from .names import Counter, Names, Weight, dense_parts, is_built, optimizer_variables, tensors_in
from .strategy import replica_here, replicas, strategy_here, value_of

# What logs are called that are not numbers: in `fit` the same things have these names.
_ARRAYS = {"labels": "labels", "predictions": "predictions", "inputs": "model_inputs"}
# Keras' own arguments of a call; no tensors that a layer works on.
_NOT_INPUTS = frozenset({"training", "mask"})


class TapeNames:
    """What the layers and variables of all models of a training loop are called. A variable of no known model is called
    by its own path."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._models: list[Names] = []
        self._weights: dict[int, Weight] = {}
        self._taken: set[str] = set()

    @property
    def weights(self) -> list[Weight]:
        """Of the variables that are known by now."""
        return list({each.name: each for each in self._weights.values()}.values())

    def path(self, layer: Any) -> str | None:
        """The path of a layer, empty for a model; None for an unknown one."""
        return next((path for names in self._models if (path := names.path(layer)) is not None), None)

    def add_model(self, model: Any) -> None:
        """Name what the model has now. Raises InvalidCollectionConfiguration if a collection was told a layer that is
        not the model's."""
        names = Names(model)
        self._models = [*(each for each in self._models if each.model is not model), names]
        for weight in names.weights:
            self._add(weight)
        if names.weights:
            for collection in self._recorder.collections:
                if isinstance(collection, Collection):
                    collection.resolve(names)

    def lacks(self, model: Any) -> bool:
        """Whether the model is unknown, or had no variables when it was named."""
        known = next((names for names in self._models if names.model is model), None)
        return self.path(model) is None if known is None else not known.weights and is_built(model)

    def weight(self, variable: Any) -> Weight:
        """What the variable and its gradient are called."""
        if id(variable) not in self._weights:
            path = str(getattr(variable, "path", None) or variable.name).partition(":")[0]
            layer, _, leaf = path.rpartition("/")
            name = f"{layer.partition('/')[0]}/weights/{path}" if layer else path
            collection = CollectionKeys.BIASES if "bias" in leaf else CollectionKeys.WEIGHTS
            self._add(Weight(f"{name}:0", f"gradients/{path}Grad", collection, variable))
        return self._weights[id(variable)]

    def forget(self) -> None:
        """Hold no model and no variable. Their names stay taken."""
        self._models, self._weights = [], {}

    def _add(self, weight: Weight) -> None:
        if id(weight.variable) in self._weights:
            return
        weight = self._unique(weight)
        inner = getattr(weight.variable, "value", None)
        # Keras 3 has variables of its own around those of TensorFlow; a loop may use either.
        for variable in (weight.variable, inner) if is_variable(inner) else (weight.variable,):
            self._weights[id(variable)] = weight
        collections = self._recorder.collections
        collections.require(weight.collection).add_tensor_names([weight.name])
        collections.add_gradient(weight.gradient, weight.name)

    def _unique(self, weight: Weight) -> Weight:
        name, gradient, number = weight.name, weight.gradient, 0
        while name in self._taken:
            number += 1
            name, gradient = f"{weight.name.removesuffix(':0')}_{number}:0", f"{weight.gradient}_{number}"
        self._taken.add(name)
        return Weight(name, gradient, weight.collection, weight.variable)


class Tapes(threading.local):
    """The tapes of one thread: what is between their enter and their exit, and what they are asked for."""

    def __init__(self, hook: TapeHook) -> None:
        self._hook = hook
        self.recorder = hook.recorder
        self._names = hook.tape_names
        self._depth = 0
        self._calls: Any = None
        self._bridge: Bridge | None = None
        self._reset()

    def _reset(self) -> None:
        self._seen: dict[str, Any] = {}
        self._given: set[str] = set()
        self._counter = Counter()
        # The losses that optimizers scaled: what they became, what they were, and the scale.
        self._scalings: list[tuple[Any, Any, Any]] = []

    def forget(self) -> None:
        """Hold nothing of the last step, unless a tape records now."""
        if not self._depth:
            self._reset()
            self._bridge = None

    # What the tape calls.

    def entered(self) -> None:
        """A tape begins to record: a step begins, unless another tape records already."""
        self._depth += 1
        if self._depth == 1:
            self._begin()
            bridge = self._bridge
            if bridge is not None and (bridge.may_be_due or not self._hook.tape_seen):
                self._calls = watching_calls(self._before, self._after, self._scaled)
                self._calls.__enter__()

    def left(self) -> None:
        """A tape has recorded."""
        self._depth -= 1
        if self._depth == 0 and self._calls is not None:
            calls, self._calls = self._calls, None
            calls.__exit__(None, None, None)
            self._give_seen()

    def computed(self, target: Any, sources: Any, gradients: Any) -> None:
        """A tape gave gradients."""
        if self._bridge is None:
            self._begin()
        bridge = self._bridge
        if bridge is None:
            return
        self._hook.tape_seen = True
        if bridge.may_be_due:
            scale = self._scale_of(target)
            values = dict(self._losses(target, scale))
            self._give_variables()
            import tensorflow as tf

            pairs = zip(tf.nest.flatten(sources), tf.nest.flatten(gradients), strict=True)
            for variable, gradient in pairs:
                if gradient is not None and is_variable(variable):
                    weight = self._names.weight(variable)
                    values[weight.gradient] = _without(scale, dense(gradient))
            self._give_variables()
            bridge.give_due(values)

    # A step.

    def _begin(self) -> None:
        self._reset()
        self._bridge = self._hook.tape_bridge()
        if self._bridge is not None:
            self._bridge.begin_step()
            if self._bridge.may_be_due:
                self._give_variables()

    def _losses(self, target: Any, scale: Any) -> Iterator[tuple[str, Any]]:
        before = {id(scaled): loss for scaled, loss, _ in self._scalings}
        for key, tensor in tensors_in(target):
            name = self._counter.next("loss", key)
            self.recorder.collections.require(CollectionKeys.LOSSES).add_tensor_names([name])
            yield name, before[id(tensor)] if id(tensor) in before else _without(scale, tensor)

    @guarded
    def _scaled(self, scaled: Any, loss: Any, scale: Any) -> None:
        import tensorflow as tf

        # Of a variable the value that it has now: applying the gradients may change it.
        self._scalings.append((scaled, loss, tf.convert_to_tensor(scale)))

    def _scale_of(self, target: Any) -> Any:
        """What the target was multiplied by, or the loss that it was made of; None without mixed precision."""
        targets = {id(tensor) for _, tensor in tensors_in(target)}
        found = [scale for scaled, _, scale in self._scalings if id(scaled) in targets]
        every = found or [scale for _, _, scale in self._scalings]
        return every[-1] if every else None

    def _give_variables(self) -> None:
        """Save the variables that are known by now and were not yet: before the update they are as they were."""
        assert self._bridge is not None
        named = [(weight.name, weight.variable) for weight in self._names.weights]
        named += optimizer_variables(self._hook.tape_optimizers())
        values = {name: variable for name, variable in named if name not in self._given}
        self._given.update(values)
        self._bridge.give_due(values)

    # Layers.

    @guarded
    def _before(self, layer: Any, outermost: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if outermost and layer.built:
            self._meet(layer)
        path = self._names.path(layer)
        if path is not None:
            name, numbered = (f"{path}/inputs", False) if path else ("model_inputs", True)
            self._see(name, args, numbered)
            self._see(name, {key: each for key, each in kwargs.items() if key not in _NOT_INPUTS}, numbered)

    @guarded
    def _after(self, layer: Any, outermost: bool, output: Any) -> None:
        if outermost:
            self._meet(layer)
        path = self._names.path(layer)
        if path is not None:
            self._see(*((f"{path}/outputs", output, False) if path else ("predictions", output, True)))

    def _meet(self, layer: Any) -> None:
        """A model that nobody registered runs under the tape."""
        if isinstance(layer, keras.Model) and self._names.lacks(layer):
            self._names.add_model(layer)
            self._give_variables()

    def _see(self, name: str, value: Any, numbered: bool) -> None:
        for key, tensor in tensors_in(value):
            for part, each in dense_parts(self._counter.next(name, key, numbered), tensor):
                if is_dense(each) and self.recorder.may_save([part]):
                    self._see_dense(part, each)

    def _see_dense(self, name: str, tensor: Any) -> None:
        building = graph()
        if getattr(tensor, "graph", building) is building:
            self._seen[name] = tensor
        else:
            self._hook.tell(f"{name} is not saved: it exists only inside of a loop or a condition of the graph")

    def _give_seen(self) -> None:
        seen, self._seen = self._seen, {}
        if self._bridge is not None and self._bridge.may_be_due:
            building = graph()
            self._bridge.give_due({n: each for n, each in seen.items() if getattr(each, "graph", building) is building})


class TapeHook:
    """What a Keras hook does for training loops of one's own."""

    recorder: LeadingRecorder
    _warn_if_copy: Callable[[], None]

    def _init_tapes(self) -> None:
        self.tape_names = TapeNames(self.recorder)
        self.tape_seen = False
        """Whether any wrapped tape gave gradients."""
        self._tapes = Tapes(self)
        self._bridges: dict[int, Bridge] = {}
        # The optimizers that are looked after, each with the method that stands in for its own.
        self._expecting: list[tuple[Any, str, Any]] = []

    def _forget_tapes(self) -> None:
        """Hold nothing of any loop, and leave nothing on its optimizers."""
        for optimizer, name, method in self._expecting:
            _remove(optimizer, name, method)
        self._expecting.clear()
        self._bridges.clear()
        self.tape_names.forget()
        self._tapes.forget()

    @unconverted
    def wrap_tape(self, tape: Any) -> Any:
        """Save what a `tf.GradientTape` sees: its loss, gradients and their variables, and what goes in and out of the
        layers that it records. Each time that it is entered, a step begins. Gives the same object.

        Raises ConfigurationError for what is not a GradientTape.
        """
        tf = _tensorflow()
        if tf is None or not isinstance(tape, tf.GradientTape):
            raise ConfigurationError(f"wrap_tape takes a tf.GradientTape, not {type(tape).__name__}")
        if not isinstance(tape, _Wrapped):
            tape.__class__ = _wrapped_class(type(tape))
        tape._hook_of_tape = self
        self._warn_if_copy()
        return tape

    @unconverted
    def save_tape_logs(self, logs: Mapping[str, Any] | None = None) -> None:
        """Save, at the open step and if they are due, what Keras would have reported in `fit`: numbers, each with the
        losses if its name ends with `loss`, else with the metrics; and `labels`, `predictions` and `inputs`."""
        self._save_tape_logs(logs or {})

    @guarded
    def _save_tape_logs(self, logs: Mapping[str, Any]) -> None:
        if not self.recorder.active or (graph() is not None and self._cannot_call_back()):
            return
        for number, recorder in enumerate(self._recorders_here()):
            bridge = self._bridge_to(recorder)
            if bridge.may_be_due:
                bridge.give_due(dict(self._named({name: value_of(number, value) for name, value in logs.items()})))

    def _named(self, logs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Logs under the names that they have in `fit`."""
        for name, value in logs.items():
            if name in _ARRAYS:
                counter = Counter()
                for key, tensor in tensors_in(value):
                    yield from dense_parts(counter.next(_ARRAYS[name], key, numbered=True), tensor)
            else:
                place = CollectionKeys.LOSSES if name.endswith("loss") else CollectionKeys.METRICS
                self.recorder.collections.require(place).add_tensor_names([name])
                yield name, value

    def tape_bridge(self) -> Bridge | None:
        """To the recorder of the replica that runs or is traced now; None if nothing of it is saved."""
        if not self.recorder.active or (graph() is not None and self._cannot_call_back()):
            return None
        recorders = self._recorders_here()
        return self._bridge_to(recorders[0]) if recorders else None

    def _bridge_to(self, recorder: Recorder) -> Bridge:
        if id(recorder) not in self._bridges:
            self._bridges[id(recorder)] = Bridge(recorder)
        return self._bridges[id(recorder)]

    def _recorders_here(self) -> list[Recorder]:
        """That of the replica that runs or is traced here, if it is saved; outside of replicas all of them."""
        self.recorder.spread(replicas(strategy_here()))
        here = replica_here()
        return self.recorder.all if here is None else self.recorder.all[here : here + 1]

    def tape_optimizers(self) -> list[Any]:
        """Those whose variables are saved at the steps of tapes."""
        raise NotImplementedError

    def tell(self, sentence: str) -> None:
        """Say once what cannot be done."""
        raise NotImplementedError

    @property
    def fits(self) -> bool:
        """Whether Keras' own `fit` is under way."""
        raise NotImplementedError

    def expect_tape(self, optimizer: Any) -> None:
        """Look, when the optimizer is first used outside of `fit`, whether a tape was wrapped before."""
        name = "apply" if hasattr(optimizer, "apply") else "apply_gradients"
        apply = getattr(optimizer, name)

        @unconverted
        def looking(*args: Any, **kwargs: Any) -> Any:
            if not self.fits:
                _remove(optimizer, name, looking)
                self._look_for_tape()
            return apply(*args, **kwargs)

        object.__setattr__(optimizer, name, looking)
        self._expecting.append((optimizer, name, looking))

    @guarded
    def _look_for_tape(self) -> None:
        saved = self.recorder.collections.saved_names
        if not self.tape_seen and self.recorder.active and CollectionKeys.GRADIENTS in saved:
            self.tell(
                "gradients are asked for, but the optimizer is used in a training loop whose tape the hook does not "
                "know; where the tape is made, write: with hook.wrap_tape(tf.GradientTape()) as tape:"
            )

    def _cannot_call_back(self) -> bool:
        compiled = compiled_by_xla()
        if compiled:
            self.tell(
                "nothing is saved from inside of a tf.function with jit_compile=True, which cannot call back: leave "
                "jit_compile out, or compile only the model: model.call = tf.function(model.call, jit_compile=True)"
            )
        return compiled

    @guarded
    def _save_here(self, save: Callable[[Recorder, Any], None], value: Any) -> None:
        """Save a value of the replica here, or of all of them, each its own; inside of a `tf.function`, at each of its
        executions."""
        building = graph()
        if building is not None and self._cannot_call_back():
            return
        for number, recorder in enumerate(self._recorders_here()):
            if building is None:
                save(recorder, value_of(number, value))
            else:
                self._bridge_to(recorder).give(partial(save, recorder), value_of(number, value))

    @guarded
    def _tape_entered(self) -> None:
        self._tapes.entered()

    @guarded
    def _tape_left(self) -> None:
        self._tapes.left()

    @guarded
    def _tape_computed(self, target: Any, sources: Any, gradients: Any) -> None:
        self._tapes.computed(target, sources, gradients)


def _remove(optimizer: Any, name: str, method: Any) -> None:
    if vars(optimizer).get(name) is method:
        object.__delattr__(optimizer, name)


def _without(scale: Any, tensor: Any) -> Any:
    return tensor if scale is None else Unscaled(tensor, scale)


def is_dense(tensor: Any) -> bool:
    """Whether this is a tensor of numbers, neither sparse nor ragged nor text."""
    tf = _tensorflow()
    return tf is None or not tf.is_tensor(tensor) or (isinstance(tensor, tf.Tensor) and tensor.dtype != tf.string)


class _Wrapped:
    """Stands before the class of a tape that is wrapped."""

    _hook_of_tape: TapeHook
    _quiet = False

    def __enter__(self) -> Any:
        self._hook_of_tape._tape_entered()
        return super().__enter__()  # type: ignore[misc]

    def __exit__(self, *error: Any) -> Any:
        try:
            return super().__exit__(*error)  # type: ignore[misc]
        finally:
            self._hook_of_tape._tape_left()

    @unconverted
    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        found = super().gradient(target, sources, *args, **kwargs)  # type: ignore[misc]
        if not self._quiet:
            self._hook_of_tape._tape_computed(target, sources, found)
        return found

    @unconverted
    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        with self._quietly():
            return super().jacobian(*args, **kwargs)  # type: ignore[misc]

    @unconverted
    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        with self._quietly():
            return super().batch_jacobian(*args, **kwargs)  # type: ignore[misc]

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """A Jacobian asks the tape for the gradient of each of its rows: none is that of a loss."""
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False


_classes: dict[type, type] = {}


def _wrapped_class(kind: type) -> type:
    if kind not in _classes:
        _classes[kind] = type(kind.__name__, (_Wrapped, kind), {})
    return _classes[kind]


def _tensorflow() -> Any:
    """TensorFlow, where Keras runs on it."""
    if not IS_TENSORFLOW:
        return None
    import tensorflow as tf

    return tf
