"""The Keras hook.

import tensortrial.hooks.tensorflow as tt

hook = tt.KerasHook(out_dir="runs/digits", include_collections=["weights", "gradients"])
model.fit(x, y, callbacks=[hook])

Without TensorFlow, on Keras' torch backend, it is `tensortrial.hooks.keras.KerasHook`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.errors import ConfigurationError, MissingExtra, UnsupportedValue
from tensortrial.mode import ModeKeys, modes

from ..core import current_hook
from ..core.base_hook import BaseHook, create_trial, guarded
from ..core.current_hook import del_hook, set_hook
from ..core.options import Framework, HookOptions, accepts_fields_of
from ..core.rank import rank_of_process
from ..core.recorder import Recorder
from ..core.replicas import LeadingRecorder

try:
    import keras
except ImportError as exc:
    raise MissingExtra("keras", "tensorflow", "the Keras hook") from exc

from .backend import IS_TENSORFLOW, unconverted, user_array, versions
from .capture import Capture
from .names import dense_parts
from .step_functions import Captured, Function, Kind, fetches_early, limits, own_function
from .strategy import replicas, strategy_here
from .tape import TapeHook

if IS_TENSORFLOW:
    # One class for all hooks of TensorFlow, so that it can be made before it is known for which.
    from .graph_collection import Collection
else:
    from .collection import Collection  # type: ignore[assignment]

__all__ = [
    "Collection",
    "CollectionKeys",
    "KerasHook",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "create_trial",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]

_BUILTIN = (
    CollectionKeys.WEIGHTS,
    CollectionKeys.BIASES,
    CollectionKeys.GRADIENTS,
    CollectionKeys.LOSSES,
    CollectionKeys.METRICS,
    CollectionKeys.SM_METRICS,
    CollectionKeys.INPUTS,
    CollectionKeys.OUTPUTS,
    CollectionKeys.LABELS,
    CollectionKeys.PREDICTIONS,
    CollectionKeys.LAYERS,
    CollectionKeys.OPTIMIZER_VARIABLES,
)
_ALWAYS_SAVED = (CollectionKeys.METRICS, CollectionKeys.LOSSES, CollectionKeys.SM_METRICS)
_FRAMEWORK = Framework("keras", versions(), builtin=_BUILTIN, always_saved=_ALWAYS_SAVED, collection_type=Collection)
_MODES: dict[Kind, ModeKeys] = {"train": modes.TRAIN, "test": modes.EVAL, "predict": modes.PREDICT}
_PATTERNS = {
    CollectionKeys.OPTIMIZER_VARIABLES: "^optimizer/",
    CollectionKeys.INPUTS: "^model_inputs_",
    CollectionKeys.OUTPUTS: "^predictions_",
    CollectionKeys.LABELS: "^labels_",
    CollectionKeys.PREDICTIONS: "^predictions_",
    CollectionKeys.LAYERS: "/(inputs|outputs)(_|$)",
}


class KerasHook(TapeHook, BaseHook, keras.callbacks.Callback):  # type: ignore[misc]
    """Saves the tensors of a Keras model that is trained by `fit`, with `callbacks=[hook]`; also of `evaluate` and
    `predict`.

    Each batch is a step, in mode TRAIN, EVAL or PREDICT. `loss` and the metrics are what Keras reports: means over the
    epoch so far. Weights and the optimizer's variables are those before the step's update. Gradients, inputs, labels,
    predictions and what goes in and out of layers come from the very step that Keras runs, as a graph or eagerly.

    `help(KerasHook.__init__)` lists the arguments. The losses, metrics and sm_metrics are always saved. After
    construction no error of the hook reaches training: the hook logs the first one and turns itself off
    (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has a value that it cannot have.
        RunExists: out_dir holds a run already.
    """

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        keras.callbacks.Callback.__init__(self)
        self.recorder = LeadingRecorder(options, _FRAMEWORK, rank_of_process)
        self.recorder.spread(replicas(strategy_here()))
        self._capture = Capture(self.recorder)
        self._init_tapes()
        # Those that stand in the place of the model's own now, and those that did.
        self._functions: dict[Kind, Function] = {}
        self._known: weakref.WeakKeyDictionary[Any, dict[Kind, Function]] = weakref.WeakKeyDictionary()
        # That of the `fit`, `evaluate` or `predict` under way, which of them, and whether a batch is.
        self._thread: threading.Thread | None = None
        self._outer: Kind | None = None
        self._runs = False
        # Keras 2 need not turn the logs of each batch into numbers for this callback.
        self._supports_tf_logs = True
        for name, regex in _PATTERNS.items():
            self.recorder.collections.require(name).include(regex)
        current_hook.made(self)

    # What the user calls.

    def register_model(self, model: Any) -> None:
        """Tell the hook of a model that `fit` does not tell it of."""
        if not isinstance(model, keras.Model):
            raise ConfigurationError(f"register_model takes a keras.Model, not {type(model).__name__}")
        self._capture.look_at(model)
        self.tape_names.add_model(model)

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Save the gradients that this optimizer applies too. That of a compiled model is known already. Gives the same
        object."""
        if not hasattr(optimizer, "apply_gradients"):
            raise ConfigurationError(f"wrap_optimizer takes an optimizer of Keras, not {type(optimizer).__name__}")
        if all(optimizer is not known for known in self._capture.optimizers):
            self._capture.optimizers.append(optimizer)
            self.expect_tape(optimizer)
        return optimizer

    def add_to_collection(self, collection_name: str, variable: Any) -> None:
        """Have a variable, a tensor's name, or several of them saved with a collection."""
        collection = self.get_collection(collection_name)
        assert isinstance(collection, Collection)
        collection.add(variable)

    @unconverted
    @guarded
    def save_tensor(
        self, tensor_name: str, tensor_value: Any, collections_to_write: Iterable[str] | str = "default"
    ) -> None:
        """Save an array, a tensor, or a (nested) list of numbers, whatever the save configuration says: at the open
        step, or, when none is open, at the one that begins next in this mode."""
        for name, part in dense_parts(tensor_name, tensor_value):
            self._save_here(partial(_save_array, name, collections_to_write), part)

    @unconverted
    @guarded
    def save_scalar(self, name: str, value: Any, sm_metric: bool = False, timestamp: float | None = None) -> None:
        def save(recorder: Recorder, number: Any) -> None:
            recorder.save_scalar(name, number, sm_metric, timestamp)

        self._save_here(save, value)

    def tape_optimizers(self) -> list[Any]:
        return self._capture.optimizers

    def tell(self, sentence: str) -> None:
        self._capture.tell(sentence)

    @property
    def fits(self) -> bool:
        return self._outer is not None

    # What Keras calls.

    def set_model(self, model: Any) -> None:
        if not self._elsewhere():
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

    def on_test_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._end_step(logs)

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

    # From the beginning of `fit` to its end.

    @guarded
    def _adopt(self, model: Any) -> None:
        """A `fit`, `evaluate` or `predict` of this model will begin."""
        self._restore()
        if self.recorder.active and fetches_early():
            self._capture.look_at(model)
            self._install(model, "test")

    @guarded
    def _begin(self, kind: Kind) -> None:
        self._warn_if_copy()
        if self._elsewhere() or not self.recorder.active:
            return
        self._settle()
        model = self.model
        self._thread, self._outer = threading.current_thread(), self._outer or kind
        self.recorder.spread(replicas(model.distribute_strategy if IS_TENSORFLOW else None))
        self._capture.look_at(model)
        sentence = limits(model)
        self._capture.blind = bool(sentence)
        if sentence:
            self._capture.tell(sentence)
        self._install(model, kind)

    @guarded
    def _end(self, kind: Kind) -> None:
        if not self._elsewhere():
            self._settle()
            if kind == self._outer:
                self._restore()

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

    def _install(self, model: Any, kind: Kind) -> None:
        """Have a Function stand in the place of the model's own; that of the last `fit`, if the model is the same."""
        known = self._known.setdefault(model, {})
        own, names = own_function(model, kind), self._capture.names
        if kind not in known or not known[kind].is_for(own, names):
            known[kind] = Function(kind, own, names, self._choose)
        self._functions[kind] = known[kind]
        setattr(model, f"{kind}_function", known[kind])

    def _restore(self) -> None:
        """Put the model's own functions back."""
        for function in self._functions.values():
            function.restore()
        self._functions.clear()
        self._thread = self._outer = None

    def _elsewhere(self) -> bool:
        """Whether another thread's `fit` calls, while one is under way already."""
        if self._thread is None or self._thread is threading.current_thread() or not self._thread.is_alive():
            return False
        self._capture.tell(
            "another `fit` runs with this hook at the same time; nothing of it is saved: give it its own hook"
        )
        return True

    # Steps.

    @guarded
    def _begin_step(self, kind: Kind) -> None:
        if self._elsewhere() or kind not in self._functions:
            return
        self._settle()
        recorder = self.recorder
        if recorder.mode is not _MODES[kind]:
            recorder.set_mode(_MODES[kind])
        for each in recorder.all:
            each.begin_step()
        self._runs = True
        if recorder.saving:
            self._capture.hold_variables()

    def _choose(self, function: Function, source: Any) -> Captured | None:
        """What runs the step that has begun: None for the model's own function."""
        if self._runs and self._thread is threading.current_thread():
            return self._capture.choose(function, source)
        return None

    @guarded
    def _end_step(self, logs: Mapping[str, Any] | None) -> None:
        if self._elsewhere() or not self._runs:
            return
        self._runs = False
        if self.recorder.saving:
            self._capture.release_variables()
            self._save_logs(logs or {})

    def _settle(self) -> None:
        """A batch that began and did not end was none: the data were at their end, or training failed."""
        if self._runs:
            self._runs = False
            self.recorder.withdraw_step()

    # Losses and metrics.

    def _save_logs(self, logs: Mapping[str, Any]) -> None:
        for name, value in logs.items():
            self._place(str(name))
            for recorder in self.recorder.all:
                _record_number(recorder, str(name), value)

    @guarded
    def _save_validation(self, logs: Mapping[str, Any] | None) -> None:
        """What validation gave at the end of an epoch is saved whatever the interval, unless it is switched off."""
        if not self.recorder.active or self._elsewhere():
            return
        self._settle()
        for name, value in (logs or {}).items():
            if str(name).startswith("val_"):
                place = self._place(name)
                config = self.recorder.collections.require(place).save_config
                if config is None or config.get_save_config(modes.EVAL).end_step != 0:
                    for recorder in self.recorder.all:
                        _save_array(name, place, recorder, value)
        if self.recorder.mode is not modes.TRAIN:
            self.recorder.set_mode(modes.TRAIN)

    def _place(self, name: str) -> str:
        """Put a number of the logs into the collection that it belongs to; gives the collection's name."""
        place = CollectionKeys.LOSSES if name.endswith("loss") else CollectionKeys.METRICS
        self.recorder.collections.require(place).add_tensor_names([name])
        return place


def _record_number(recorder: Recorder, name: str, value: Any) -> None:
    plan = recorder.plan(name)
    try:
        if plan is not None:
            recorder.record(plan, user_array(value))
    except UnsupportedValue as exc:
        recorder.refuse(name, exc)


def _save_array(name: str, collections: Iterable[str] | str, recorder: Recorder, value: Any) -> None:
    try:
        recorder.save_tensor(name, user_array(value), collections)
    except UnsupportedValue as exc:
        recorder.refuse(name, exc)


def get_hook(
    hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False
) -> Any:
    """The current hook, or None; made from the JSON configuration if asked to be."""
    return current_hook.get_hook(
        hook_type, json_config_path, create_if_not_exists, create=KerasHook.create_from_json_file
    )
