"""The functions of a Keras model that run one step: its own, and those that capture what the step brings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal

import keras

from .backend import BACKEND, IS_TENSORFLOW
from .layer_outputs import Taps
from .names import Names

Kind = Literal["train", "test", "predict"]


class Function:
    """Stands in the place of a model's train, test or predict function, `own`.

    Before each step `choose` says what shall run it: None for `own`, untouched, or what captures.
    """

    def __init__(self, kind: Kind, own: Any, names: Names, choose: Callable[[Function, Any], Captured | None]) -> None:
        self.kind, self.own, self.names = kind, own, names
        self.captured: dict[frozenset[str], Captured | None] = {}
        """What captures, by the names that it captures."""
        self.due: dict[object, frozenset[str]] = {}
        """The names that are due, by what the recorder says is."""
        self.more: dict[object, bool] = {}
        """Whether something is asked for that may only be known once the step is traced, likewise."""
        self.seen: set[str] = set()
        """What steps brought so far, wanted or not."""
        self.built = False
        """Whether the model is known to have all its variables."""
        self.asked_to_build = False
        """Whether the model was asked to make the variables that it makes when it first runs."""
        self._choose = choose
        self._hidden: Any = None

    def __call__(self, *args: Any) -> Any:
        # Where Keras runs on JAX, the state of the model comes before the data.
        captured = self._choose(self, args[-1])
        if captured is None:
            return self.own(*args)
        result = captured(*args)
        self._show(captured)
        return result

    def _show(self, captured: Captured) -> None:
        """Show Keras 2 the function that has run in the place of its own, if that was never traced: the TensorBoard
        callback takes its graph after the first step."""
        own = getattr(self.model, "train_tf_function", None)
        if self.kind == "train" and isinstance(captured, GraphStep) and own is not None and not _was_traced(own):
            self._hidden = own
            object.__setattr__(self.model, "train_tf_function", captured.traced)

    def restore(self) -> None:
        """Put the model's own function back."""
        if getattr(self.model, f"{self.kind}_function", None) is self:
            setattr(self.model, f"{self.kind}_function", self.own)
            if self._hidden is not None:
                object.__setattr__(self.model, "train_tf_function", self._hidden)
        self._hidden = None

    @property
    def model(self) -> Any:
        return self.names.model

    def candidates(self) -> set[str]:
        """What a step may bring."""
        return self.seen.union(self.names.candidates())

    def is_for(self, own: Any, names: Names) -> bool:
        """Whether it can serve again: the model was neither compiled nor changed since."""
        return self.own is own and self.names is names


def own_function(model: Any, kind: Kind) -> Any:
    """The model's own, also where a training that was interrupted left ours in its place."""
    if fetches_early():
        getattr(model, f"make_{kind}_function")()
    function = getattr(model, f"{kind}_function")
    return function.own if isinstance(function, Function) else function


def fetches_early() -> bool:
    """Whether `evaluate` takes the model's function before it calls callbacks, as that of Keras 2 does."""
    return str(keras.__version__).startswith("2.")


def _was_traced(function: Any) -> bool:
    return getattr(function, "_concrete_variable_creation_fn", None) is not None


def is_graph(model: Any) -> bool:
    """Whether the steps of the model are traced."""
    return IS_TENSORFLOW and not model.run_eagerly


def limits(model: Any) -> str:
    """What of the model's steps cannot be seen, in a sentence; empty if all can."""
    if BACKEND not in ("tensorflow", "torch"):
        return f"on Keras' backend {BACKEND} losses and metrics are saved, and nothing else"
    executed = getattr(model, "steps_per_execution", getattr(model, "_steps_per_execution", 1))
    # Under a strategy, Keras 2 has it in a variable.
    executed = executed.numpy() if hasattr(executed, "numpy") else executed
    if executed is not None and int(executed) > 1:
        return (
            "with steps_per_execution above 1 the batches of one execution are one step, of which losses, metrics and "
            "variables are saved, and nothing else"
        )
    return ""


class Captured:
    """Runs a step and hands over what it brought."""

    def __init__(self, taps: Taps, optimizers: Iterable[Any], give: Callable[[dict[str, Any]], None]) -> None:
        self.taps = taps
        self.give = give
        self._optimizers = list(optimizers)

    def __call__(self, source: Any) -> Any:
        with self.taps.watching(self._optimizers):
            result, tensors = self.run(source)
        self.give(tensors)
        return result

    def prepare(self, source: Any) -> None:
        """Do all that may fail before the step runs."""

    def run(self, source: Any) -> tuple[Any, dict[str, Any]]:
        raise NotImplementedError


class EagerStep(Captured):
    """Runs the model's own function, and sees each tensor as it comes."""

    def __init__(self, own: Callable[[Any], Any], *args: Any) -> None:
        super().__init__(*args)
        self._own = own

    def run(self, source: Any) -> tuple[Any, dict[str, Any]]:
        self.taps.begin()
        result = self._own(source)
        return result, self.taps.end()


class GraphStep(Captured):
    """Traces the model's step once more, with what the taps see as further results.

    Traced as Keras does it: from the batch's iterator, the step itself compiled by XLA where the model is. After that
    it runs without any Python.
    """

    def __init__(self, model: Any, kind: Kind, *args: Any) -> None:
        super().__init__(*args)
        self.traced = self._trace(model, kind)
        """What runs the step."""

    def prepare(self, source: Any) -> None:
        with self.taps.watching(self._optimizers):
            self.traced.get_concrete_function(source)

    def run(self, source: Any) -> tuple[Any, dict[str, Any]]:
        import tensorflow as tf

        try:
            result, tensors = self.traced(source)
        except tf.errors.OutOfRangeError as exc:
            raise StopIteration from exc
        return result, tensors

    def _trace(self, model: Any, kind: Kind) -> Any:
        import tensorflow as tf

        step, strategy = getattr(model, f"{kind}_step"), model.distribute_strategy
        begin, end = map(tf.autograph.experimental.do_not_convert, (self.taps.begin, self.taps.end))
        # Keras 2 converts the code of models by autograph and counts the steps; Keras 3 does neither.
        counter = getattr(model, f"_{kind}_counter", None)

        def run_step(data: Any) -> Any:
            begin()
            result = step(data)
            if counter is not None:
                counter.assign_add(1)
            return result, end(data)

        def on_replicas(data: Any) -> Any:
            result, tensors = strategy.run(run_step, args=(data,))
            return _reduced(model, kind, result), tensors

        convert = getattr(model, "_autoconvert_optionals", lambda function: function)
        options = {"reduce_retracing": True, "autograph": counter is not None}
        compiled = convert(tf.function(on_replicas, jit_compile=model.jit_compile, **options))

        def from_source(source: Any) -> Any:
            return compiled(source[0] if isinstance(source, list) else source.get_next())

        return tf.function(from_source, **options)


def _reduced(model: Any, kind: Kind, result: Any) -> Any:
    """What all replicas gave as the one result that Keras makes of it, by Keras' own function."""
    name = "keras.src.engine.training" if fetches_early() else "keras.src.backend.tensorflow.trainer"
    reduction = "concat" if kind == "predict" else getattr(model, "distribute_reduction_method", "auto")
    return sys.modules[name].reduce_per_replica(result, model.distribute_strategy, reduction)
