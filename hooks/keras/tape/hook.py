"""The part of the Keras hook for training loops that use a GradientTape.

with hook.wrap_tape(tf.GradientTape()) as tape:
    loss = loss_object(labels, model(images, training=True))
gradients = tape.gradient(loss, model.trainable_variables)
hook.save_tape_logs({"labels": labels})
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.errors import ConfigurationError, UnsupportedValue

from ...core.recorder import Recorder, guarded
from ..backend import IS_TENSORFLOW, check_dense, graph, unconverted, user_array
from ..graph_callback import GraphCallback, compiled_by_xla, is_variable
from ..names import Counter, VariableNaming, dense_parts, tensors_in
from ..strategy import replica_here, replicas, strategy_here, value_of
from .names import TapeNames
from .recorder import TapeOwner, TapeRecorder
from .updates import TapeUpdates
from .wrapped import wrap

# Logs that are not metrics, with their names in `fit`.
_ARRAYS = {"labels": "labels", "predictions": "predictions", "inputs": "model_inputs"}


class TapeHook(TapeOwner):
    """The part of a Keras hook for training loops that use a GradientTape."""

    naming = VariableNaming()
    """The naming of variables; scripts for smdebug read other names."""

    def _init_tapes(self) -> None:
        self.tape_names = TapeNames(self.recorder, self.naming)
        self.tape_seen = False
        """True if any wrapped tape computed gradients."""
        self._tape_recorder = TapeRecorder(self)
        self.tape_updates = TapeUpdates(self)
        self._callbacks: dict[int, GraphCallback] = {}

    def _forget_tapes(self) -> None:
        """Release the state of a training loop, and restore its optimizers."""
        self.tape_updates.forget()
        self._callbacks.clear()
        self.tape_names.forget()
        self._tape_recorder.forget()

    @unconverted
    def wrap_tape(self, tape: Any) -> Any:
        """Save the tensors that a `tf.GradientTape` records.

        These are its loss, the gradients and their variables, and the inputs and outputs of layers that are called
        while the tape records. Each time the tape is entered, a step begins.

        Args:
            tape: A `tf.GradientTape`.

        Returns:
            The same tape.

        Raises:
            ConfigurationError: `tape` is not a GradientTape.
        """
        if not _is_tape(tape):
            raise ConfigurationError(f"wrap_tape takes a tf.GradientTape, got {type(tape).__name__}")
        wrap(tape, self._tape_recorder)
        self.recorder.warn_if_copy()
        return tape

    @unconverted
    def save_tape_logs(self, logs: Mapping[str, Any] | None = None) -> None:
        """Save the logs that `fit` would save, if they are due at the open step.

        Args:
            logs: Numbers by name, in the collection `losses` if the name ends with `loss`, else in `metrics`; also
                tensors under the names `labels`, `predictions` and `inputs`.
        """
        self._save_tape_logs(logs or {})

    @guarded
    def _save_tape_logs(self, logs: Mapping[str, Any]) -> None:
        if not self.recorder.active or (graph() is not None and self._cannot_call_back()):
            return
        for number, recorder in enumerate(self._recorders_here()):
            callback = self._callback_of(recorder)
            if callback.may_be_due:
                callback.record_due(dict(self._named({name: value_of(number, value) for name, value in logs.items()})))

    def _named(self, logs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield logs with their names in `fit`."""
        for name, value in logs.items():
            if name in _ARRAYS:
                counter = Counter()
                for key, tensor in tensors_in(value):
                    yield from dense_parts(counter.next(_ARRAYS[name], key, numbered=True), tensor)
            else:
                collection = CollectionKeys.LOSSES if name.endswith("loss") else CollectionKeys.METRICS
                self.recorder.collections.require(collection).add_tensor_names([name])
                try:
                    yield name, _checked(value)
                except UnsupportedValue as exc:
                    self.recorder.refuse(name, exc)

    def tape_callback(self) -> GraphCallback | None:
        """Return the callback of the replica that runs or is traced; None in `fit`, or if the replica is not saved."""
        if not self.recorder.active or self.is_fitting or (graph() is not None and self._cannot_call_back()):
            return None
        recorders = self._recorders_here()
        return self._callback_of(recorders[0]) if recorders else None

    def _callback_of(self, recorder: Recorder) -> GraphCallback:
        if id(recorder) not in self._callbacks:
            self._callbacks[id(recorder)] = GraphCallback(recorder)
        return self._callbacks[id(recorder)]

    def _recorders_here(self) -> list[Recorder]:
        """Return the recorder of the current replica if it is saved; all recorders outside of replicas."""
        self.recorder.broadcast(replicas(strategy_here()))
        here = replica_here()
        return self.recorder.all if here is None else self.recorder.all[here : here + 1]

    def _cannot_call_back(self) -> bool:
        compiled = compiled_by_xla()
        if compiled:
            self.recorder.failures.warn_once(
                "nothing is saved inside a tf.function with jit_compile=True, which cannot call Python: remove "
                "jit_compile, or compile only the model: model.call = tf.function(model.call, jit_compile=True)"
            )
        return compiled

    @guarded
    def _save_here(self, save: Callable[[Recorder, Any], None], value: Any) -> None:
        """Save the value of the current replica, or, outside of replicas, that of each replica.

        Inside a `tf.function` it is saved at each execution.
        """
        building = graph()
        if building is not None and self._cannot_call_back():
            return
        for number, recorder in enumerate(self._recorders_here()):
            if building is None:
                save(recorder, value_of(number, value))
            else:
                self._callback_of(recorder).call(partial(save, recorder), value_of(number, value))


def _checked(value: Any) -> Any:
    """Return a variable or a tensor unchanged, and any other value as an array. Raises UnsupportedValue."""
    check_dense(value)
    return value if is_variable(value) or hasattr(value, "dtype") else user_array(value)


def _is_tape(value: Any) -> bool:
    if not IS_TENSORFLOW:
        return False
    import tensorflow as tf

    return isinstance(value, tf.GradientTape)
