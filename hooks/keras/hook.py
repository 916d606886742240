"""The hook for Keras models and for training loops that use a GradientTape.

import tensortrial.hooks.tensorflow as tt

hook = tt.KerasHook(out_dir="runs/digits", include_collections=["weights", "gradients"])
model.fit(x, y, callbacks=[hook])

Without TensorFlow, on Keras' torch backend, it is `tensortrial.hooks.keras.KerasHook`.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.errors import ConfigurationError, UnsupportedValue, importing
from tensortrial.format.record import Step
from tensortrial.mode import ModeKeys, modes

from ..core import current_hook
from ..core.base_hook import BaseHook
from ..core.configuration.collections import ATTENTION, define_attention
from ..core.configuration.options import OF_NETWORKS, Framework, HookOptions, accepts_fields_of
from ..core.process.rank import rank_of_process
from ..core.recorder import Recorder, guarded
from .replicas import LeadingRecorder

with importing("keras", "tensorflow", "the Keras hook"):
    import keras

from .backend import IS_TENSORFLOW, unconverted, user_array, versions
from .capture import Capture
from .names import dense_parts
from .step_functions import CapturingStep, Phase, StepFunction, fetches_early, limits, original_function
from .strategy import replicas, strategy_here
from .tape.hook import TapeHook

if IS_TENSORFLOW:
    # One class for all hooks of TensorFlow, so that a collection can be made before its hook.
    from .graph_collection import Collection
else:
    from .collection import Collection  # type: ignore[assignment]

__all__ = ["Collection", "KerasHook", "get_hook"]

_BUILTIN = (
    *OF_NETWORKS,
    CollectionKeys.INPUTS,
    CollectionKeys.OUTPUTS,
    CollectionKeys.LABELS,
    CollectionKeys.PREDICTIONS,
    CollectionKeys.LAYERS,
    CollectionKeys.OPTIMIZER_VARIABLES,
    CollectionKeys.UPDATES,
    CollectionKeys.HYPERPARAMETERS,
    CollectionKeys.HEALTH,
)
_FRAMEWORK = Framework(
    "keras",
    versions(),
    builtin=_BUILTIN,
    always_saved=[CollectionKeys.METRICS, CollectionKeys.LOSSES, CollectionKeys.SM_METRICS],
    by_default=[CollectionKeys.HEALTH],
    collection_type=Collection,
)
_MODES: dict[Phase, ModeKeys] = {"train": modes.TRAIN, "test": modes.EVAL, "predict": modes.PREDICT}
_PATTERNS = {
    CollectionKeys.OPTIMIZER_VARIABLES: "^optimizer/",
    CollectionKeys.INPUTS: "^model_inputs_",
    CollectionKeys.OUTPUTS: "^predictions_",
    CollectionKeys.LABELS: "^labels_",
    CollectionKeys.PREDICTIONS: "^predictions_",
    CollectionKeys.LAYERS: "/(inputs|outputs)(_|$)",
    CollectionKeys.HYPERPARAMETERS: "^hyperparameters/",
}


class KerasHook(TapeHook, BaseHook, keras.callbacks.Callback):  # type: ignore[misc]
    """A hook that saves the tensors of a Keras model: pass it to `fit`, `evaluate` and `predict` as `callbacks=[hook]`.

    Each batch is a step, in mode TRAIN, EVAL or PREDICT. `loss` and the metrics are Keras' logs: means over the epoch
    so far. Weights and the optimizer's variables are saved with their values before the step's update. Gradients,
    inputs, labels, predictions, and the inputs and outputs of layers come from the step that Keras itself runs, as a
    graph or eagerly. Inside a `tf.function`, `save_tensor` and `save_scalar` save at each execution. The parts of a
    ragged or sparse tensor have its name with an ending.

    `help(KerasHook.__init__)` lists the arguments. The losses, metrics and sm_metrics are always saved. After
    construction no error of the hook reaches training: the hook logs the first one and turns itself off
    (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has an invalid value.
        RunExists: out_dir holds a run already.
    """

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        keras.callbacks.Callback.__init__(self)
        self.recorder = LeadingRecorder(options, _FRAMEWORK, rank_of_process)
        self.recorder.broadcast(replicas(strategy_here()))
        self._capture = Capture(self.recorder, self.naming)
        self._init_tapes()
        # The replacements of the current model's functions, and those that its next `fit` may use again.
        self._functions: dict[Phase, StepFunction] = {}
        self._known: dict[Phase, StepFunction] = {}
        # The thread of the running `fit`, `evaluate` or `predict`, the name of the method, whether a batch runs, and
        # the model's function that Keras' loop has not called for the batch yet.
        self._thread: threading.Thread | None = None
        self._outer: Phase | None = None
        self._batch_runs = False
        self._pending: Phase | None = None
        self._is_listed = False
        # The phase of a step that an evaluation with this hook interrupted before the step ran.
        self._suspended: Phase | None = None
        # The number and the mode of a step that one interrupted after the step ran, before the hook had its logs.
        self._unlogged: tuple[int, ModeKeys] | None = None
        # Keras 2 need not convert the logs of each batch to numbers for this callback.
        self._supports_tf_logs = True
        for name, regex in _PATTERNS.items():
            self.recorder.collections.require(name).include(regex)
        if ATTENTION in self.recorder.collections.saved_names:
            define_attention(self.recorder.collections)
        if CollectionKeys.HEALTH in self.recorder.collections.saved_names:
            self.recorder.collections.include([CollectionKeys.HYPERPARAMETERS])
        current_hook.made(self)

    # Methods that users call.

    def register_model(self, model: Any) -> None:
        """Name the tensors of a model that is not trained by `fit`.

        Args:
            model: A `keras.Model`.

        Raises:
            ConfigurationError: `model` is not a `keras.Model`.
        """
        if not isinstance(model, keras.Model):
            raise ConfigurationError(f"register_model takes a keras.Model, got {type(model).__name__}")
        self._capture.refresh_names(model)
        self.tape_names.add_model(model)

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Save the gradients that an optimizer applies, and with the collection `updates` its changes.

        The optimizer of a compiled model is known already.

        Args:
            optimizer: An optimizer of Keras.

        Returns:
            The same optimizer.

        Raises:
            ConfigurationError: `optimizer` is not an optimizer of Keras.
        """
        if not hasattr(optimizer, "apply_gradients"):
            raise ConfigurationError(f"wrap_optimizer takes an optimizer of Keras, got {type(optimizer).__name__}")
        if all(optimizer is not known for known in self._capture.optimizers):
            self._capture.optimizers.append(optimizer)
            self.tape_updates.follow(optimizer)
        return optimizer

    def add_to_collection(self, collection_name: str, variable: Any) -> None:
        """Include a variable, the symbolic output of a layer, or several of them in a collection.

        Args:
            collection_name: The name of the collection, which is created if it does not exist.
            variable: The variable, the output, or several of them; see `Collection.add`.

        Raises:
            ConfigurationError: `variable` cannot be part of a collection.
        """
        collection = self.get_collection(collection_name)
        assert isinstance(collection, Collection)
        collection.add(variable)

    def _save_tensor(
        self, name: str, value: Any, collections_to_write: Iterable[str] | str, step: Any, mode: Any
    ) -> None:
        for part_name, part in dense_parts(name, value):
            self._save_here(partial(_save_array, part_name, collections_to_write, step=step, mode=mode), part)

    def _save_scalars(
        self, numbers: Iterable[tuple[str, Any]], sm_metric: bool, timestamp: float | None, step: Any, mode: Any
    ) -> None:
        def save(recorder: Recorder, number: Any, name: str) -> None:
            recorder.save_scalars([(name, number)], sm_metric, timestamp, step, mode)

        for name, value in numbers:
            self._save_here(partial(save, name=name), value)

    def tape_optimizers(self) -> list[Any]:
        """Return the optimizers whose variables are saved at the steps of tapes."""
        return self._capture.optimizers

    @property
    def is_fitting(self) -> bool:
        """True if Keras' own `fit`, `evaluate` or `predict` is under way, and has not failed."""
        is_here = self._thread is threading.current_thread()  # and not a replica's thread
        return self._outer is not None and (not is_here or _is_within("fit", "evaluate", "predict"))

    # Methods that Keras calls.

    def set_model(self, model: Any) -> None:
        if not self._is_elsewhere():
            super().set_model(model)
            self._adopt(model)

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._begin("train")

    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._begin("test")

    def on_predict_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._begin("predict")

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._begin_step("train")

    def on_test_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._begin_step("test")

    def on_predict_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._begin_step("predict")

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._end_step(logs)

    on_test_batch_end = on_train_batch_end

    def on_predict_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._end_step(None)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._save_validation(logs)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._end("train")

    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._end("test")

    def on_predict_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._end("predict")

    # The life of a `fit`.

    @guarded
    def _adopt(self, model: Any) -> None:
        """Prepare for a `fit`, `evaluate` or `predict` of this model."""
        self._restore()
        if self.recorder.active and fetches_early():
            self._capture.refresh_names(model)
            self._install(model, "test")

    @guarded
    def _begin(self, phase: Phase) -> None:
        self.recorder.warn_if_copy()
        if self._is_elsewhere() or not self.recorder.active:
            return
        is_open = self._batch_runs
        self._suspended = self._pending if is_open and _is_within(f"on_{self._pending}_batch_begin") else None
        if is_open and self._pending is None and _is_within("on_train_batch_end", "on_test_batch_end"):
            self._end_step(None)
            step = self.recorder.clock.step
            self._unlogged = None if step is None else (step.mode_step, step.mode)
        self._withdraw_unfinished()
        model = self.model
        self._thread, self._outer = threading.current_thread(), self._outer or phase
        self.recorder.broadcast(replicas(model.distribute_strategy if IS_TENSORFLOW else None))
        self._capture.refresh_names(model)
        sentence = limits(model)
        self._capture.is_limited = bool(sentence)
        if sentence:
            self.recorder.failures.warn_once(sentence)
        self._install(model, phase)

    @guarded
    def _end(self, phase: Phase) -> None:
        if not self._is_elsewhere():
            self._withdraw_unfinished()
            if phase == self._outer:
                self._restore()
            if self._suspended is not None:
                self._begin_step(self._suspended)

    @guarded
    def _let_go(self) -> None:
        self._restore()
        self._known.clear()
        self._capture.forget()
        self._forget_tapes()
        for collection in self.recorder.collections:
            if hasattr(collection, "forget_parts"):
                collection.forget_parts()
        super().set_model(None)

    def _install(self, model: Any, phase: Phase) -> None:
        """Replace a function of the model by a StepFunction. An unchanged model gets that of the last `fit`."""
        original, names = original_function(model, phase), self._capture.names
        found, known = getattr(model, f"{phase}_function"), self._known.get(phase)
        if isinstance(found, StepFunction) and found is not known:
            self.recorder.failures.warn_once(
                "another hook observes this model; from now on it saves only losses, metrics and variables; pass one "
                "hook to `callbacks`"
            )
        if known is None or not known.is_for(original, names):
            known = StepFunction(phase, original, names, self._choose, self._capture.as_traced)
            # A function keeps its model in memory, so those of an earlier model are dropped.
            self._known = {**{key: each for key, each in self._known.items() if each.names is names}, phase: known}
        self._functions[phase] = known
        setattr(model, f"{phase}_function", known)

    def _restore(self) -> None:
        """Restore the model's own functions."""
        for function in self._functions.values():
            function.restore()
        self._functions.clear()
        self._thread, self._outer, self._is_listed = None, None, False

    def _is_elsewhere(self) -> bool:
        """Return whether another thread makes the call while a `fit` is running."""
        if self._thread is None or self._thread is threading.current_thread() or not self._thread.is_alive():
            return False
        self.recorder.failures.warn_once(
            "nothing is saved of a `fit` that runs in another thread at the same time; make a hook for each thread"
        )
        return True

    # Steps.

    @guarded
    def _begin_step(self, phase: Phase) -> None:
        if self._is_elsewhere():
            return
        if phase not in self._functions:  # An `evaluate` or `predict` inside `fit`, with this hook, has removed them.
            self._begin(phase)
        if phase not in self._functions:
            return
        self._withdraw_unfinished()
        # A callback may have made a new function, which Keras requires after freezing layers during training.
        if not isinstance(getattr(self.model, f"{phase}_function", None), StepFunction | None):
            self._capture.refresh_names(self.model)
            self._install(self.model, phase)
        recorder = self.recorder
        if recorder.clock.mode is not _MODES[phase]:
            recorder.set_mode(_MODES[phase])
        for each in recorder.all:
            each.begin_step()
        self._batch_runs, self._pending = True, phase
        if phase == self._suspended:
            self._suspended = None
        if recorder.saving:
            self._capture.capture_variables()

    def _choose(self, function: StepFunction, source: Any, callbacks: Any) -> CapturingStep | None:
        """Return the function that runs the open step; None for the model's own."""
        if not self._batch_runs or self._thread is not threading.current_thread():
            return None
        # After an error, the model may train without this hook, whose step is still open. One of the callbacks calls a
        # hook that is never among them.
        is_listed = any(each is self for each in getattr(callbacks, "callbacks", ()))
        self._is_listed |= is_listed
        if callbacks is not None and is_listed == self._is_listed and function.phase == self._pending:
            self._pending = None
            return self._capture.choose(function, source)
        self._keep_apart()
        return None

    @guarded
    def _keep_apart(self) -> None:
        """Keep changes by a callback's own step out of the open step."""
        if self._pending is None:
            self._capture.updates.end()
        else:
            self._capture.forget_variables()

    @guarded
    def _end_step(self, logs: Mapping[str, Any] | None) -> None:
        if self._is_elsewhere():
            return
        if self._batch_runs:
            self._batch_runs = False
            if self.recorder.saving:
                self._capture.record_variables()
                self._capture.updates.end()
                self._save_logs(logs or {})
        elif self._unlogged is not None:
            (step, mode), self._unlogged = self._unlogged, None
            with self.recorder.saving_at(step, mode) as at:
                if at is not None and self.recorder.saving:
                    self._save_logs(logs or {}, at)

    def _withdraw_unfinished(self) -> None:
        """Withdraw the step of an unfinished batch, because the data ended or training failed."""
        if self._batch_runs:
            self._batch_runs = False
            self.recorder.withdraw_step()

    # Losses and metrics.

    def _save_logs(self, logs: Mapping[str, Any], step: Step | None = None) -> None:
        for name, value in logs.items():
            self._collection_of(str(name))
            for recorder in self.recorder.all if step is None else [self.recorder]:
                _record_number(recorder, str(name), value, step)

    @guarded
    def _save_validation(self, logs: Mapping[str, Any] | None) -> None:
        """Save the results of validation at the end of an epoch for any save interval, unless end_step is 0."""
        if not self.recorder.active or self._is_elsewhere():
            return
        self._withdraw_unfinished()
        for name, value in (logs or {}).items():
            if str(name).startswith("val_"):
                collection = self._collection_of(name)
                config = self.recorder.collections.require(collection).save_config
                if config is None or config.get_save_config(modes.EVAL).end_step != 0:
                    for recorder in self.recorder.all:
                        _save_array(name, collection, recorder, value)
        if self.recorder.clock.mode is not modes.TRAIN:
            self.recorder.set_mode(modes.TRAIN)

    def _collection_of(self, name: str) -> str:
        """Add a number of the logs to its collection, and return the collection's name."""
        collection = CollectionKeys.LOSSES if name.endswith("loss") else CollectionKeys.METRICS
        self.recorder.collections.require(collection).add_tensor_names([name])
        return collection


def _is_within(*methods: str) -> bool:
    """Return whether a method of one of these names is running. If none is, the batch has failed, or the data ended."""
    return any(frame.f_code.co_name in methods for frame, _ in traceback.walk_stack(None))


def _record_number(recorder: Recorder, name: str, value: Any, step: Step | None) -> None:
    plan = recorder.planner.plan(name)
    try:
        if plan is not None:
            recorder.record(plan, user_array(value), step=step)
    except UnsupportedValue as exc:
        recorder.refuse(name, exc)


def _save_array(
    name: str, collections: Iterable[str] | str, recorder: Recorder, value: Any, step: Any = None, mode: Any = None
) -> None:
    try:
        recorder.save_tensor(name, user_array(value), collections, step=step, mode=mode)
    except UnsupportedValue as exc:
        recorder.refuse(name, exc)


# A `tf.function` calls these methods as they are.
unconverted(BaseHook.save_scalar)
unconverted(BaseHook.log)
unconverted(BaseHook.save_tensor)
unconverted(BaseHook.save_tensors)
unconverted(BaseHook.save_image)

get_hook = current_hook.getter(KerasHook.create_from_json_file)
