"""The Keras hook.

import tensortrial.hooks.tensorflow as tt

hook = tt.KerasHook(out_dir="runs/digits", include_collections=["weights", "gradients"])
model.fit(x, y, callbacks=[hook])

Without TensorFlow, on Keras' torch backend, it is `tensortrial.hooks.keras.KerasHook`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tensortrial.collection import CollectionKeys
from tensortrial.errors import ConfigurationError, MissingExtra, UnsupportedValue
from tensortrial.mode import ModeKeys, modes
from tensortrial.reduction_config import ReductionConfig
from tensortrial.save_config import SaveConfig, SaveConfigMode

from . import current
from .configuration import read_configuration
from .current import del_hook, set_hook
from .hook import BaseHook, guarded
from .rank import rank_from_environment
from .recorder import Recorder, logger

try:
    import keras
except ImportError as exc:
    raise MissingExtra("keras", "tensorflow", "the Keras hook") from exc

from .keras_backend import to_array, variable_array, versions
from .keras_collection import Collection
from .keras_functions import Captured, EagerStep, Function, GraphStep, Kind, is_graph, limits, own_function
from .keras_names import Names, optimizer_variables
from .keras_taps import Taps

if TYPE_CHECKING:
    from tensortrial.trial import create_trial

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
_MODES: dict[Kind, ModeKeys] = {"train": modes.TRAIN, "test": modes.EVAL, "predict": modes.PREDICT}
_PATTERNS = {
    CollectionKeys.OPTIMIZER_VARIABLES: "^optimizer/",
    CollectionKeys.INPUTS: "^model_inputs_",
    CollectionKeys.OUTPUTS: "^predictions_",
    CollectionKeys.LABELS: "^labels_",
    CollectionKeys.PREDICTIONS: "^predictions_",
    CollectionKeys.LAYERS: "/(inputs|outputs)(_|$)",
}
# More sets of collections that fall due together than this are traced as one, of all that is ever saved.
_MOST_TRACES = 4
_EVERYTHING = frozenset({"everything that is ever saved"})


class KerasHook(BaseHook, keras.callbacks.Callback):  # type: ignore[misc]
    """Saves the tensors of a Keras model that is trained by `fit`, with `callbacks=[hook]`; also of `evaluate` and
    `predict`.

    Each batch is a step, in mode TRAIN, EVAL or PREDICT. `loss` and the metrics are what Keras reports: means over the
    epoch so far. Weights and the optimizer's variables are those before the step's update. Gradients, inputs, labels,
    predictions and what goes in and out of layers come from the very step that Keras runs, as a graph or eagerly.

    The arguments are those of every hook: see `tensortrial.hooks.pytorch.Hook`. Raises ConfigurationError for arguments
    that make no sense, RunExists.
    """

    def __init__(
        self,
        out_dir: str | os.PathLike[str],
        export_tensorboard: bool = False,
        tensorboard_dir: str | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | Mapping[Any, Any] | None = None,
        include_regex: Iterable[str] | str | None = None,
        include_collections: Iterable[str] | None = None,
        save_all: bool = False,
        include_workers: str = "one",
        *,
        resume: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        flush_seconds: float | None = None,
        codec: str = "none",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        keras.callbacks.Callback.__init__(self)
        if export_tensorboard or tensorboard_dir:
            logger.warning("TensorBoard files are not written by this release; histograms are kept in the run's index")
        self.recorder = Recorder(
            out_dir,
            framework="keras",
            versions=versions(),
            rank=rank_from_environment(),
            builtin=_BUILTIN,
            always_saved=_ALWAYS_SAVED,
            collection_factory=Collection,
            export_tensorboard=export_tensorboard,
            dry_run=dry_run,
            reduction_config=reduction_config,
            save_config=save_config,
            include_regex=include_regex,
            include_collections=include_collections,
            save_all=save_all,
            include_workers=include_workers,
            resume=resume,
            storage_options=storage_options,
            flush_seconds=flush_seconds,
            codec=codec,
            metadata=metadata,
        )
        self._names: Names | None = None
        self._functions: dict[Kind, Function] = {}
        self._known: weakref.WeakKeyDictionary[Any, dict[Kind, Function]] = weakref.WeakKeyDictionary()
        self._limits = False
        self._optimizers: list[Any] = []
        self._chosen: Captured | None = None
        self._thread: int | None = None
        self._told: set[str] = set()
        # Keras 2 need not turn the logs of each batch into numbers for this callback.
        self._supports_tf_logs = True
        for name, regex in _PATTERNS.items():
            self.recorder.collections.require(name).include(regex)
        if current.get_hook() is None:
            set_hook(self)

    @classmethod
    def create_from_json_file(cls, json_file_path: str | None = None) -> KerasHook:
        """A hook as a JSON configuration describes it; see `tensortrial.hooks.configuration`. It becomes the current
        hook."""
        configuration = read_configuration(json_file_path)
        hook = cls(**configuration.arguments)
        hook.recorder.apply(configuration)
        set_hook(hook)
        return hook

    # What the user calls.

    def register_model(self, model: Any) -> None:
        """Tell the hook of a model that `fit` does not tell it of."""
        if not isinstance(model, keras.Model):
            raise ConfigurationError(f"register_model takes a keras.Model, not {type(model).__name__}")
        self._look_at(model)

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Save the gradients that this optimizer applies too. That of a compiled model is known already. Gives the same
        object."""
        if not hasattr(optimizer, "apply_gradients"):
            raise ConfigurationError(f"wrap_optimizer takes an optimizer of Keras, not {type(optimizer).__name__}")
        if all(optimizer is not known for known in self._optimizers):
            self._optimizers.append(optimizer)
        return optimizer

    def add_to_collection(self, collection_name: str, variable: Any) -> None:
        """Have a variable, a tensor's name, or several of them saved with a collection."""
        collection = self.get_collection(collection_name)
        assert isinstance(collection, Collection)
        collection.add(variable)

    @guarded
    def save_tensor(
        self, tensor_name: str, tensor_value: Any, collections_to_write: Iterable[str] | str = "default"
    ) -> None:
        """Save an array, an eager tensor, or a (nested) list of numbers, whatever the save configuration says: at the
        open step, or, when none is open, at the one that begins next in this mode."""
        try:
            value = to_array(tensor_value) if hasattr(tensor_value, "shape") else np.asarray(tensor_value)
            self.recorder.save_tensor(tensor_name, value, collections_to_write)
        except UnsupportedValue as exc:
            self.recorder.refuse(tensor_name, exc)

    # What Keras calls.

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
        self._save_logs(logs)

    def on_test_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._save_logs(logs)

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
    def _begin(self, kind: Kind) -> None:
        if self._elsewhere() or not self.recorder.active:
            return
        self._thread = threading.get_ident()
        self._look_at(self.model)
        self._limits = self._tell_limits(self.model)
        function = self._functions[kind] = self._function(self.model, kind)
        setattr(self.model, f"{kind}_function", function)

    @guarded
    def _end(self, kind: Kind) -> None:
        if self._elsewhere() or kind not in self._functions:
            return
        function = self._functions.pop(kind)
        if getattr(self.model, f"{kind}_function", None) is function:
            setattr(self.model, f"{kind}_function", function.own)
        if not self._functions:
            self._thread = None

    def _elsewhere(self) -> bool:
        """Whether another thread's `fit` calls, while one is under way already."""
        if self._thread is None or self._thread == threading.get_ident():
            return False
        self._tell("another `fit` runs with this hook at the same time; nothing of it is saved: give it its own hook")
        return True

    def _look_at(self, model: Any) -> None:
        """Name what the model has now: it may be another one than last time, or have been changed."""
        names = Names(model)
        if self._names is not None and names.same(self._names):
            return
        self._names = names
        collections = self.recorder.collections
        for weight in names.weights:
            collections.require(weight.collection).add_tensor_names([weight.name])
            collections.require(CollectionKeys.GRADIENTS).add_tensor_names([weight.gradient])
        for collection in collections:
            if isinstance(collection, Collection):
                collection.resolve(names)

    def _function(self, model: Any, kind: Kind) -> Function:
        """What stands in the place of a model's function; the one of the last `fit`, if the model is the same."""
        assert self._names is not None
        known = self._known.setdefault(model, {})
        own = own_function(model, kind)
        if kind not in known or not known[kind].is_for(own, self._names):
            known[kind] = Function(kind, own, self._names, self._choose)
        return known[kind]

    def _tell_limits(self, model: Any) -> bool:
        """Whether the model's steps cannot be looked into; said once."""
        sentence = limits(model)
        if sentence:
            self._tell(sentence)
        return bool(sentence)

    def _tell(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            logger.warning("%s", sentence)

    # Steps.

    @guarded
    def _begin_step(self, kind: Kind) -> None:
        if self._elsewhere() or kind not in self._functions:
            return
        recorder = self.recorder
        if recorder.mode is not _MODES[kind]:
            recorder.set_mode(_MODES[kind])
        recorder.begin_step()
        if recorder.saving:
            self._save_variables()

    def _save_variables(self) -> None:
        assert self._names is not None
        if not self._names.weights and self.model.weights:
            # Built by its first batch, which has just run.
            self._look_at(self.model)
        named = [(weight.name, weight.variable) for weight in self._names.weights]
        for name, variable in [*named, *optimizer_variables(getattr(self.model, "optimizer", None))]:
            plan = self.recorder.plan(name)
            if plan is not None:
                self.recorder.record(plan, variable_array(variable))

    def _choose(self, function: Function, source: Any) -> Captured | None:
        """What runs the step that has begun: None for the model's own function."""
        self._chosen = None
        if self.recorder.saving and not self._limits and self._thread == threading.get_ident():
            self._prepare(function, source)
        return self._chosen

    @guarded
    def _prepare(self, function: Function, source: Any) -> None:
        if not function.names.weights:
            self._tell(
                "the model is built by its first batch, and of that step only losses and metrics are saved; call "
                "model.build(input_shape) before `fit` to have all"
            )
            return
        key = self._due_names(function)
        if key not in function.captured:
            if len(function.captured) >= _MOST_TRACES:
                key = _EVERYTHING
            if key not in function.captured:
                function.captured[key] = self._captured(function, source, key)
        self._chosen = function.captured[key]

    def _due_names(self, function: Function) -> frozenset[str]:
        """What the step can bring of what is due at it."""
        recorder = self.recorder
        if recorder.due not in function.due:
            function.due[recorder.due] = frozenset(
                name for name in function.candidates() if recorder.plan(name) is not None
            )
        return function.due[recorder.due]

    def _captured(self, function: Function, source: Any, key: frozenset[str]) -> Captured | None:
        if not key:
            return None
        recorder = self.recorder

        def wanted(name: str) -> bool:
            function.seen.add(name)
            return recorder.may_save([name]) if key is _EVERYTHING else recorder.plan(name) is not None

        taps = Taps(recorder, function.names, wanted)
        own_optimizer = getattr(function.names.model, "optimizer", None)
        optimizers = list({id(each): each for each in [own_optimizer, *self._optimizers] if each is not None}.values())
        kind: Kind = function.kind
        if is_graph(function.names.model):
            step: Captured = GraphStep(function.names.model, kind, taps, optimizers, self._save_captured)
        else:
            step = EagerStep(function.own, taps, optimizers, self._save_captured)
        step.prepare(source)
        return step

    @guarded
    def _save_captured(self, tensors: dict[str, Any]) -> None:
        for name, tensor in tensors.items():
            plan = self.recorder.plan(name)
            if plan is not None:
                self.recorder.record(plan, to_array(tensor), owned=True)

    # Losses and metrics.

    @guarded
    def _save_logs(self, logs: Mapping[str, Any] | None) -> None:
        if not self.recorder.saving or not logs or self._elsewhere():
            return
        for name, value in logs.items():
            self._place(name)
            plan = self.recorder.plan(name)
            if plan is not None:
                self.recorder.record(plan, np.asarray(value))

    @guarded
    def _save_validation(self, logs: Mapping[str, Any] | None) -> None:
        """What validation gave at the end of an epoch is saved whatever the interval, unless it is switched off."""
        if not self.recorder.active or not logs or self._elsewhere():
            return
        for name, value in logs.items():
            if name.startswith("val_"):
                place = self._place(name)
                config = self.recorder.collections.require(place).save_config
                if config is None or config.get_save_config(modes.EVAL).end_step != 0:
                    self.recorder.save_tensor(name, np.asarray(value), place)

    def _place(self, name: str) -> str:
        """Put a number of the logs into the collection that it belongs to; gives the collection's name."""
        place = CollectionKeys.LOSSES if name.endswith("loss") else CollectionKeys.METRICS
        self.recorder.collections.require(place).add_tensor_names([name])
        return place


def get_hook(
    hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False
) -> Any:
    """The current hook, or None; made from the JSON configuration if asked to be."""
    return current.get_hook(hook_type, json_config_path, create_if_not_exists, create=KerasHook.create_from_json_file)


def __getattr__(name: str) -> Any:
    # Reading needs DuckDB, and a training job seldom reads.
    if name == "create_trial":
        import tensortrial

        return tensortrial.create_trial
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
