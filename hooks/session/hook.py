"""The hook for sessions of tf.compat.v1.

import tensortrial.hooks.tensorflow as tt

hook = tt.SessionHook(out_dir="runs/digits", include_collections=["weights", "gradients"])
optimizer = hook.wrap_optimizer(optimizer)
with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
    session.run(train_op)
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensortrial.config.collection import CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.dtypes import Array
from tensortrial.errors import ConfigurationError, MissingExtra, UnsupportedValue
from tensortrial.format.record import Plan
from tensortrial.mode import ModeKeys, modes

from ..core import current_hook
from ..core.base_hook import BaseHook, create_trial, guarded
from ..core.current_hook import del_hook, set_hook
from ..core.options import Framework, HookOptions, accepts_fields_of
from ..core.rank import rank_of_process
from ..core.recorder import Recorder, logger

try:
    import tensorflow as tf
except ImportError as exc:
    raise MissingExtra("tensorflow", "tensorflow", "the TensorFlow hooks") from exc

from ..core.user_values import array_of
from ..keras.graph_collection import Collection
from .fetches import RunView, Way
from .graph import GraphView
from .optimizer import Gradients
from .session_state import Run, Watched

__all__ = [
    "Collection",
    "CollectionKeys",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "SessionHook",
    "create_trial",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]

v1 = tf.compat.v1

_BUILTIN = (
    CollectionKeys.WEIGHTS,
    CollectionKeys.BIASES,
    CollectionKeys.GRADIENTS,
    CollectionKeys.LOSSES,
    CollectionKeys.METRICS,
    CollectionKeys.SM_METRICS,
    CollectionKeys.TENSORFLOW_SUMMARIES,
)
_ALWAYS_SAVED = (CollectionKeys.METRICS, CollectionKeys.LOSSES, CollectionKeys.SM_METRICS)
# The session is lost, and the user's own run would say so, too; a MonitoredSession then makes another one.
_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError)
_FRAMEWORK = Framework(
    "tensorflow",
    {"tensorflow": tf.__version__},
    builtin=_BUILTIN,
    always_saved=_ALWAYS_SAVED,
    collection_type=Collection,
    errors_of_training=_LOST,
)


@dataclass(frozen=True)
class Slices:
    """A sparse gradient: the tensor that its name belongs to has its rows."""

    indices: str
    shape: tuple[int, ...]

    def dense(self, rows: Array, indices: Array) -> Array:
        """An array of the whole gradient. Rows of one index add up."""
        whole = np.zeros(self.shape, rows.dtype)
        np.add.at(whole, indices, rows)
        return whole


@dataclass
class Due:
    """What is saved of a run that goes on."""

    mode: ModeKeys
    within: dict[str, Any] = field(default_factory=dict)
    """What the run is asked for."""
    values: dict[str, Array] = field(default_factory=dict)
    """What was read before it."""


class SessionHook(BaseHook, tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]  # TensorFlow has no types
    """A hook that saves the tensors of a job that runs a graph in sessions: pass it to a MonitoredSession as one of its
    `hooks`, or a plain session to `wrap_session`.

    Each `session.run` that ends without an error is a step, also one that initialises. A variable is saved as it was
    before the run. Another tensor is saved at the runs that compute it, or could compute it without changing any state:
    a loss whose placeholders are not fed is left out. With `save_all` these are all variables and everything that the
    user's run computes.

    `help(SessionHook.__init__)` lists the arguments. The losses, metrics and sm_metrics are always saved. After
    construction no error of the hook reaches training: the hook logs the first one and turns itself off
    (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has a value that it cannot have.
        RunExists: out_dir holds a run already.
    """

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        self.recorder = Recorder(options, _FRAMEWORK, rank_of_process)
        self._watched: weakref.WeakKeyDictionary[Any, Watched] = weakref.WeakKeyDictionary()
        self._due: weakref.WeakKeyDictionary[Any, Due] = weakref.WeakKeyDictionary()
        self._wrapped: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stand_ins: weakref.WeakSet[Any] = weakref.WeakSet()
        self._gradients = Gradients()
        self._found: set[str] = set()
        self._told: set[str] = set()
        # Sessions may run in several threads: the values of one run stay together.
        self._finishing = threading.Lock()
        current_hook.made(self)

    # What the user calls.

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Save the gradients that a tf.compat.v1.train.Optimizer computes and applies, and the loss that it minimizes.
        Gives the same optimizer. Call it before `minimize`."""
        if not isinstance(optimizer, v1.train.Optimizer):
            raise ConfigurationError(
                f"{type(self).__name__}.wrap_optimizer takes a tf.compat.v1.train.Optimizer, not "
                f"{type(optimizer).__name__}; KerasHook takes those of Keras"
            )
        if optimizer not in self._wrapped:
            self._wrapped.add(optimizer)
            self._gradients.follow(optimizer, self._stands_in)
        return optimizer

    def wrap_session(self, session: Any) -> Any:
        """Make each `run` of a plain session a step. Gives the same session."""
        if not isinstance(session, (v1.Session, v1.InteractiveSession)):
            raise ConfigurationError(
                f"wrap_session takes a tf.compat.v1.Session, not {type(session).__name__}; a MonitoredSession or an "
                "Estimator takes hooks=[hook] itself, and a model of Keras takes callbacks=[KerasHook(...)]"
            )
        if session not in self._wrapped:
            self._wrapped.add(session)
            session.run = self._watching(session, session.run)
        return session

    def add_to_collection(self, collection_name: str, variable: Any) -> None:
        """Include a tensor, a variable or an operation of the graph in a collection, which is made if there is none;
        see `Collection.add`."""
        collection = self.recorder.collections.require(collection_name)
        if not isinstance(collection, Collection):
            raise ConfigurationError(f"the collection {collection_name!r} is not one of TensorFlow's: {collection!r}")
        collection.add(variable)

    @guarded
    def save_tensor(
        self, tensor_name: str, tensor_value: Any, collections_to_write: Iterable[str] | str = "default"
    ) -> None:
        """Save an array, or a (nested) list or tuple of numbers, whatever the save configuration says: at the step that
        comes next in this mode; in the form that the collections ask for."""
        try:
            self.recorder.save_tensor(tensor_name, _to_array(tensor_value), collections_to_write)
        except UnsupportedValue as exc:
            self.recorder.refuse(tensor_name, exc)

    # What a session calls.

    def after_create_session(self, session: Any, coord: Any) -> None:
        """For a MonitoredSession: it has made a session, perhaps in the place of one that was lost."""
        self._begin(session)

    def before_run(self, run_context: Any) -> Any:
        """For a MonitoredSession: what the hook wants to see of a run."""
        self._prepare(run_context, run_context.session.run)
        due = self._due.get(run_context)
        return v1.train.SessionRunArgs(due.within) if due is not None and due.within else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """For a MonitoredSession: the run is over, and this is what it gave."""
        self._finish(run_context, run_values.results or {})

    def end(self, session: Any) -> None:
        """For a MonitoredSession: there will be no more runs. The run on disk goes on: another session may follow."""
        self._watched.pop(session, None)

    def set_model(self, model: Any) -> None:
        """For Keras, which calls this of each callback: this hook is none."""
        raise ConfigurationError(
            f"{type(self).__name__} is for sessions of tf.compat.v1; a model of Keras takes callbacks=[KerasHook(...)]"
        )

    set_params = set_model

    def _watching(self, session: Any, run: Callable[..., Any]) -> Callable[..., Any]:
        @self._stands_in
        @functools.wraps(run)
        def watched(fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
            arguments = v1.train.SessionRunArgs(fetches, feed_dict)
            context = v1.train.SessionRunContext(original_args=arguments, session=session)
            self._prepare(context, run)
            due = self._due.get(context)
            if due is None or not due.within:
                given, results = run(fetches, feed_dict, options, run_metadata), {}
            else:
                given, results = run([fetches, due.within], feed_dict, options, run_metadata)
            self._finish(context, results)
            return given

        return watched

    def _stands_in(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Remember what stands in for a method."""
        self._stand_ins.add(method)
        return method

    @guarded
    def _let_go(self) -> None:
        for wrapped in list(self._wrapped):
            for name, method in list(vars(wrapped).items()):
                if inspect.isfunction(method) and method in self._stand_ins:
                    delattr(wrapped, name)
        self._wrapped.clear()
        self._watched.clear()
        self._due.clear()
        for collection in self.recorder.collections:
            if isinstance(collection, Collection):
                collection.forget_parts()

    # A run.

    @guarded
    def _begin(self, session: Any) -> None:
        if self.recorder.active:
            self._watch(session)

    @guarded
    def _prepare(self, context: Any, run: Run) -> None:
        self._warn_if_copy()
        if not self.recorder.active:
            return
        watched = self._watch(context.session)
        self._count_in(watched.mode)
        due = self._due[context] = Due(self.recorder.mode)
        if not self.recorder.foresee():
            return
        if watched.look_again():
            self._name(watched.graph)
            self.recorder.foresee()
        self._ask(watched, context.original_args, run, due)

    @guarded
    def _finish(self, context: Any, results: Mapping[str, Any]) -> None:
        due = self._due.pop(context, None)
        if due is None:
            return
        with self._finishing:
            mode = self.recorder.mode
            self._count_in(due.mode)
            self.recorder.begin_step()
            for name, value in due.values.items():
                self._record(name, value, owned=True)
            for name, value in results.items():
                # The user may have fetched the same tensor, and then has the same array.
                slices = self._gradients.slices.get(name)
                self._record(name, np.asarray(value) if slices is None else slices.dense(*value))
            self.recorder.end_step()
            self._count_in(mode)

    def _ask(self, watched: Watched, arguments: Any, run: Run, due: Due) -> None:
        """Read what is due before the run, and ask the run for the rest."""
        wanted = list(self._wanted(watched.graph, watched.run_of(arguments.fetches, arguments.feed_dict)))
        ready = watched.initialized((holder for _, _, way in wanted for holder in way.needs), run)
        able = [(name, element, way.before) for name, element, way in wanted if way.needs <= ready]
        before = {name: element for name, element, is_before in able if is_before}
        due.values = watched.read(before, run, arguments.feed_dict)
        due.within = {name: element for name, element, is_before in able if not is_before}

    def _wanted(self, graph: GraphView, run: RunView) -> Iterator[tuple[str, Any, Way]]:
        """What is due and can be had: its name, what to ask a session for, and how."""
        for name, variable in graph.variables.items():
            if self.recorder.plan(name) is not None:
                yield name, variable, Way(True, graph.holders_of(name))
        for name, tensor in graph.tensors.items():
            plan = self.recorder.plan(name)
            if plan is None or (name in graph.unasked and not self._is_named(plan)):
                continue
            # A gradient, or whatever there is, is no reason to compute more than the user does.
            may_add = bool(plan.collections) and CollectionKeys.GRADIENTS not in plan.collections
            way = run.way(tensor, may_add)
            if way is not None:
                slices = self._gradients.slices.get(name)
                yield name, tensor if slices is None else (tensor, graph.tensors[slices.indices]), way

    def _is_named(self, plan: Plan) -> bool:
        collections = self.recorder.collections
        return any(plan.name in collections.require(each).tensor_names for each in plan.collections)

    def _record(self, name: str, value: Array, owned: bool = False) -> None:
        plan = self.recorder.plan(name)
        if plan is None:
            return
        try:
            self.recorder.record(plan, value, owned=owned)
        except UnsupportedValue as exc:
            self.recorder.refuse(name, exc)

    def _count_in(self, mode: ModeKeys | None) -> None:
        if mode is not None and mode is not self.recorder.mode:
            self.recorder.set_mode(mode)

    # A graph.

    def _watch(self, session: Any) -> Watched:
        watched = self._watched.get(session)
        if watched is None:
            watched = self._watched[session] = Watched(session.graph, self._mode_of(session.graph))
            self._name(watched.graph)
        return watched

    def _mode_of(self, graph: Any) -> ModeKeys | None:
        """What the runs of a graph are counted in; None: in what the user has set."""
        return None

    def _name(self, graph: GraphView) -> None:
        """Put the tensors of a graph into the collections that are meant for them, and say what is missing."""
        biases = {name for name in graph.trainable if "bias" in name.rpartition("/")[2]}
        for kind, names in (
            (CollectionKeys.BIASES, biases),
            (CollectionKeys.WEIGHTS, graph.trainable - biases),
            (CollectionKeys.LOSSES, graph.losses | self._gradients.losses),
            (CollectionKeys.TENSORFLOW_SUMMARIES, graph.summarized),
        ):
            self.recorder.collections.require(kind).add_tensor_names(names)
            self._found |= names
        for name, variable in self._gradients.names.items():
            self.recorder.collections.add_gradient(name, variable)
            self._found.add(name)
        self._warn_of_gradients(graph)
        self._warn_of_missing(graph)

    def _warn_of_gradients(self, graph: GraphView) -> None:
        wanted = CollectionKeys.GRADIENTS in self.recorder.collections.saved_names
        if wanted and graph.updates_weights and not self._gradients.names:
            self._tell(
                CollectionKeys.GRADIENTS,
                "gradients are to be saved, but none will be: no optimizer is wrapped; add the line "
                "`optimizer = hook.wrap_optimizer(optimizer)` before `optimizer.minimize(loss)`",
            )

    def _warn_of_missing(self, graph: GraphView) -> None:
        for collection in self.recorder.collections.saved():
            given = collection.added if isinstance(collection, Collection) else set()
            for name in sorted(collection.tensor_names - given - self._found):
                if name not in graph.tensors and name not in graph.variables:
                    self._tell(name, f"the collection {collection.name!r} names {name!r}; {graph.why_not(name)}")

    def _tell(self, key: str, sentence: str) -> None:
        if key not in self._told:
            self._told.add(key)
            logger.warning("%s", sentence)


def get_hook(
    hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False
) -> Any:
    """The current hook, or None; made from the JSON configuration if asked to be."""
    return current_hook.get_hook(
        hook_type, json_config_path, create_if_not_exists, create=SessionHook.create_from_json_file
    )


def _to_array(value: Any) -> Array:
    """An array of what a user passes for a tensor. Raises UnsupportedValue."""
    if tf.is_tensor(value) and not hasattr(value, "numpy"):
        raise UnsupportedValue(
            f"{value} has no value outside a run of a session; hook.add_to_collection(collection, tensor) saves it at "
            "each run"
        )
    return array_of(value)
