"""The functions that run one step of a Keras model, with and without collecting its tensors."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import FrameType
from typing import Any, Literal

import keras

from .backend import BACKEND, IS_TENSORFLOW, uncompiled
from .names import Names
from .step_tensors import StepTensors
from .traced_flags import TracedFlags
from .traced_numbers import type_of

Phase = Literal["train", "test", "predict"]
_ON_BATCH = ("train_on_batch", "test_on_batch", "predict_on_batch")
"""The methods of a model that run one step outside of any loop of Keras."""


class StepFunction:
    """A replacement of a model's train, test or predict function, which is kept as `original`.

    Args:
        phase: Which of the three functions.
        original: The model's function.
        names: The names of the model's tensors.
        choose: Called before each step with this object, the source of the batch, and the callbacks of the `fit`,
            `evaluate` or `predict` that runs the step; None outside of these loops. Returns the function that runs the
            step and collects its tensors; None for `original`.
        as_traced: Called before `choose` with this object and the source. Sets the state of the step's trace in the
            model, until the returned context ends.
    """

    def __init__(
        self,
        phase: Phase,
        original: Any,
        names: Names,
        choose: Callable[[StepFunction, Any, Any], CapturingStep | None],
        as_traced: Callable[[StepFunction, Any], ExitStack],
    ) -> None:
        self.phase, self.original, self.names = phase, original, names
        self.capturing: dict[frozenset[str], CapturingStep | None] = {}
        """The steps that collect tensors, by the names of the tensors."""
        self.due_names: dict[object, frozenset[str]] = {}
        """For the recorder's due collections: the names of their tensors."""
        self.awaits_unknown: dict[object, bool] = {}
        """For the recorder's due collections: True if one may match a tensor whose name is known only after tracing."""
        self.seen: set[str] = set()
        """The names of all tensors of the steps so far, due or not."""
        self.built = False
        """True if the model is known to have all its variables."""
        self.build_attempted = False
        """True if tracing was tried once to create the variables that the model creates in its first step."""
        self.flags: dict[str, TracedFlags] = {}
        """The trained layers of each trace, by the type of its data."""
        self.ran_original: set[str] = set()
        """The types of data for which `original` ran and was traced."""
        self._choose, self._as_traced = choose, as_traced
        self._hidden: Any = None

    def __call__(self, *args: Any) -> Any:
        # A callback may train on a batch of its own while a step of `fit` is open, or in a `fit` of its own.
        callbacks = _callbacks_of(sys._getframe(1))
        # On JAX, the first argument is the model's state, followed by the data.
        with self._as_traced(self, args[-1]):
            step = self._choose(self, args[-1], callbacks)
            if step is None:
                self.ran_original.add(type_of(args[-1]))
                return self.original(*args)
            result = step(*args)
        self._show(step)
        return result

    def _show(self, step: CapturingStep) -> None:
        """Let Keras 2 see the function that ran, if its own was never traced.

        The TensorBoard callback reads the graph of `train_tf_function` after the first step.
        """
        original = getattr(self.model, "train_tf_function", None)
        if self.phase == "train" and isinstance(step, GraphStep) and original is not None and not _was_traced(original):
            self._hidden = original
            object.__setattr__(self.model, "train_tf_function", step.traced)

    def restore(self) -> None:
        """Put the model's own function back."""
        if getattr(self.model, f"{self.phase}_function", None) is self:
            setattr(self.model, f"{self.phase}_function", self.original)
            if self._hidden is not None:
                object.__setattr__(self.model, "train_tf_function", self._hidden)
        self._hidden = None

    @property
    def model(self) -> Any:
        """The model."""
        return self.names.model

    def candidates(self) -> set[str]:
        """Return the names of tensors that a step may have."""
        return self.seen.union(self.names.candidates())

    def is_for(self, original: Any, names: Names) -> bool:
        """Return whether this can be used again, because the model was neither compiled nor changed since."""
        return self.original is original and self.names is names


def original_function(model: Any, phase: Phase) -> Any:
    """Return the model's own function, even if an interrupted training left a StepFunction in the model."""
    # A loop of the user's own may call the callbacks before Keras makes the function.
    getattr(model, f"make_{phase}_function")()
    function = getattr(model, f"{phase}_function")
    return function.original if isinstance(function, StepFunction) else function


def fetches_early() -> bool:
    """Return whether `evaluate` fetches the model's function before it calls callbacks, as in Keras 2."""
    return str(keras.__version__).startswith("2.")


def _callbacks_of(caller: FrameType) -> Any:
    """Return the callbacks of the loop that called a step; None outside of loops."""
    if caller.f_code.co_name in _ON_BATCH:
        return None
    # In Keras 2, `evaluate` runs its steps through a helper.
    loop = caller if "callbacks" in caller.f_locals else caller.f_back
    return loop.f_locals.get("callbacks", ()) if loop else ()


def _was_traced(function: Any) -> bool:
    return getattr(function, "_concrete_variable_creation_fn", None) is not None


def is_graph(model: Any) -> bool:
    """Return whether the steps of the model are traced."""
    return IS_TENSORFLOW and not model.run_eagerly


def limits(model: Any) -> str:
    """Return a sentence about tensors of the model's steps that cannot be saved; '' if there are none."""
    if BACKEND not in ("tensorflow", "torch"):
        return (
            f"only losses and metrics are saved on Keras' backend {BACKEND}; "
            "for all tensors use the backend tensorflow or torch"
        )
    executed = getattr(model, "steps_per_execution", getattr(model, "_steps_per_execution", 1))
    # Under a strategy, it is a variable in Keras 2.
    executed = executed.numpy() if hasattr(executed, "numpy") else executed
    if executed is not None and int(executed) > 1:
        return (
            f"only losses, metrics and variables are saved with steps_per_execution={int(executed)}, and the batches "
            "of one execution count as one step; for all tensors compile the model with steps_per_execution=1"
        )
    return ""


class CapturingStep(ABC):
    """A function that runs a step and passes its tensors to `save`.

    Args:
        save: Called with the tensors of each step.
    """

    def __init__(self, tensors: StepTensors, optimizers: Iterable[Any], save: Callable[[dict[str, Any]], None]) -> None:
        self.tensors = tensors
        self._save = save
        self._optimizers = list(optimizers)

    def __call__(self, source: Any) -> Any:
        with self.tensors.observing(self._optimizers):
            result, tensors = self.run(source)
        self._save(tensors)
        return result

    @abstractmethod
    def run(self, source: Any) -> tuple[Any, dict[str, Any]]:
        """Run the step on the next batch of `source`. Return its result, and its tensors by name."""


class EagerStep(CapturingStep):
    """The model's own function, whose tensors are collected while it runs, without torch.compile."""

    def __init__(self, original: Callable[[Any], Any], *args: Any) -> None:
        super().__init__(*args)
        self._original = original

    def run(self, source: Any) -> tuple[Any, dict[str, Any]]:
        """Run the step on the next batch of `source`. Return its result, and its tensors by name."""
        self.tensors.begin()
        with uncompiled():
            result = self._original(source)
        return result, self.tensors.end()


class GraphStep(CapturingStep):
    """The model's step in a second trace, with the collected tensors as additional results.

    It is traced like Keras' own: from the iterator of batches, and with the step compiled by XLA if the model is.
    Afterwards it runs without Python.
    """

    def __init__(self, model: Any, phase: Phase, *args: Any) -> None:
        super().__init__(*args)
        self.traced = self._trace(model, phase)
        """The `tf.function` that runs the step."""

    def trace(self, source: Any) -> None:
        """Trace the step now, so that errors occur before the step runs."""
        with self.tensors.observing(self._optimizers):
            self.traced.get_concrete_function(source)

    def run(self, source: Any) -> tuple[Any, dict[str, Any]]:
        """Run the step on the next batch of `source`. Return its result, and its tensors by name."""
        import tensorflow as tf

        try:
            result, tensors = self.traced(source)
        except tf.errors.OutOfRangeError as exc:
            raise StopIteration from exc
        return result, tensors

    def _trace(self, model: Any, phase: Phase) -> Any:
        import tensorflow as tf

        step, strategy = getattr(model, f"{phase}_step"), model.distribute_strategy
        begin, end = map(tf.autograph.experimental.do_not_convert, (self.tensors.begin, self.tensors.end))
        # Keras 2 converts the code of models by autograph and counts the steps; Keras 3 does neither.
        counter = getattr(model, f"_{phase}_counter", None)

        def run_step(data: Any) -> Any:
            begin()
            result = step(data)
            if counter is not None:
                counter.assign_add(1)
            return result, end(data)

        def on_replicas(data: Any) -> Any:
            result, tensors = strategy.run(run_step, args=(data,))
            return _reduced(model, phase, result), tensors

        convert = getattr(model, "_autoconvert_optionals", lambda function: function)
        options = {"reduce_retracing": True, "autograph": counter is not None}
        compiled = convert(tf.function(on_replicas, jit_compile=model.jit_compile, **options))

        def from_source(source: Any) -> Any:
            return compiled(source[0] if isinstance(source, list) else source.get_next())

        return tf.function(from_source, **options)


def _reduced(model: Any, phase: Phase, result: Any) -> Any:
    """Combine the results of all replicas by Keras' own function."""
    name = "keras.src.engine.training" if fetches_early() else "keras.src.backend.tensorflow.trainer"
    reduction = "concat" if phase == "predict" else getattr(model, "distribute_reduction_method", "auto")
    return sys.modules[name].reduce_per_replica(result, model.distribute_strategy, reduction)
