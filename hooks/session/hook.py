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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensortrial.config.collection import CollectionKeys
from tensortrial.dtypes import Array
from tensortrial.errors import ConfigurationError, UnsupportedValue, importing
from tensortrial.format.record import Plan
from tensortrial.mode import ModeKeys

from ..core import current_hook
from ..core.base_hook import BaseHook
from ..core.configuration.options import OF_NETWORKS, Framework, HookOptions, accepts_fields_of
from ..core.process.rank import rank_of_process
from ..core.recorder import Recorder, guarded
from ..library.identity import IdentityMap

with importing("tensorflow", "tensorflow", "the TensorFlow hooks"):
    import tensorflow as tf

from ..keras.graph_collection import Collection
from .fetches import Access, RunView
from .graph import GraphView
from .optimizer import Gradients
from .session_state import Run, SessionState

__all__ = ["Collection", "SessionHook"]

v1 = tf.compat.v1

# Errors of a lost session. The user's own run would raise them too, and a MonitoredSession then creates another
# session.
_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError)
_FRAMEWORK = Framework(
    "tensorflow",
    {"tensorflow": tf.__version__},
    builtin=[*OF_NETWORKS, CollectionKeys.TENSORFLOW_SUMMARIES],
    always_saved=[CollectionKeys.METRICS, CollectionKeys.LOSSES, CollectionKeys.SM_METRICS],
    collection_type=Collection,
    errors_of_training=_LOST,
)


@dataclass
class DueTensors:
    """The due tensors of one run."""

    mode: ModeKeys
    fetches: dict[str, Any] = field(default_factory=dict)
    """The tensors that the run itself has to fetch, by name."""
    values: dict[str, Array] = field(default_factory=dict)
    """The values that were read before the run, by name."""


class SessionHook(BaseHook, tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]  # TensorFlow has no types
    """A hook that saves the tensors of a job that runs a graph in sessions.

    Pass it to a MonitoredSession as one of its `hooks`, or pass a plain session to `wrap_session`.

    Each `session.run` that ends without an error is a step, also one that initializes variables. A variable is saved
    with its value before the run. Other tensors are saved at the runs that compute them, or could compute them without
    changing state. A loss whose placeholders are not fed is skipped. `save_all` saves all variables and all tensors
    that the user's run computes.

    `help(SessionHook.__init__)` lists the arguments. The losses, metrics and sm_metrics are always saved. After
    construction no error of the hook reaches training: the hook logs the first one and turns itself off
    (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has an invalid value.
        RunExists: out_dir holds a run already.
    """

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        self.recorder = Recorder(options, _FRAMEWORK, rank_of_process)
        self._states = IdentityMap[Any, SessionState]()
        self._due = IdentityMap[Any, DueTensors]()
        self._wrapped = IdentityMap[Any, None]()
        self._replacements = IdentityMap[Any, None]()
        self._gradients = Gradients()
        self._known_names: set[str] = set()
        # Sessions may run in several threads: the values of one run stay together.
        self._finishing = threading.Lock()
        current_hook.made(self)

    # Methods that users call.

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Save the gradients that an optimizer computes and applies, and the loss that it minimizes.

        Args:
            optimizer: A `tf.compat.v1.train.Optimizer`, before its `minimize` is called.

        Returns:
            The same optimizer.

        Raises:
            ConfigurationError: It is another object, such as an optimizer of Keras.
        """
        if not isinstance(optimizer, v1.train.Optimizer):
            raise ConfigurationError(
                f"{type(self).__name__}.wrap_optimizer takes a tf.compat.v1.train.Optimizer, got "
                f"{type(optimizer).__name__}; for an optimizer of Keras use KerasHook"
            )
        if optimizer not in self._wrapped:
            self._wrapped[optimizer] = None
            self._gradients.observe(optimizer, self._remember_replacement)
        return optimizer

    def wrap_session(self, session: Any) -> Any:
        """Make each `run` of a plain session a step.

        Args:
            session: A `tf.compat.v1.Session` or `InteractiveSession`.

        Returns:
            The same session.

        Raises:
            ConfigurationError: It is another object, such as a MonitoredSession, which takes `hooks=[hook]`.
        """
        if not isinstance(session, (v1.Session, v1.InteractiveSession)):
            raise ConfigurationError(
                f"wrap_session takes a tf.compat.v1.Session, got {type(session).__name__}; pass hooks=[hook] to a "
                "MonitoredSession or an Estimator, and callbacks=[KerasHook(...)] to a model of Keras"
            )
        if session not in self._wrapped:
            self._wrapped[session] = None
            session.run = self._wrap_run(session, session.run)
        return session

    def add_to_collection(self, collection_name: str, variable: Any) -> None:
        """Include a tensor, a variable or an operation of the graph in a collection.

        Args:
            collection_name: The name of the collection, which is created if it does not exist.
            variable: The tensor, variable or operation, or several of them; see `Collection.add`.

        Raises:
            ConfigurationError: The collection or the tensor is not one of TensorFlow.
        """
        collection = self.recorder.collections.require(collection_name)
        if not isinstance(collection, Collection):
            raise ConfigurationError(
                f"collection {collection_name!r} must be a tensortrial.hooks.tensorflow.Collection, got {collection!r}"
            )
        collection.add(variable)

    def _array_of(self, value: Any) -> tuple[Array, bool]:
        if tf.is_tensor(value) and not hasattr(value, "numpy"):
            raise UnsupportedValue(
                f"{value} has no value outside a run of a session; to save it at each run, call "
                "hook.add_to_collection(collection, tensor)"
            )
        return super()._array_of(value)

    # Methods that a session calls.

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Name the tensors of a session that a MonitoredSession created."""
        self._begin(session)

    def before_run(self, run_context: Any) -> Any:
        """Return the fetches that a MonitoredSession adds to the user's."""
        self._prepare(run_context, run_context.session.run)
        due = self._due.get(run_context)
        return v1.train.SessionRunArgs(due.fetches) if due is not None and due.fetches else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Save the tensors that a run of a MonitoredSession returned."""
        self._finish(run_context, run_values.results or {})

    def end(self, session: Any) -> None:
        """Release a MonitoredSession that ended. The run stays open, because another session may follow."""
        self._states.pop(session, None)

    def set_model(self, model: Any) -> None:
        """Raise an error if the hook is used as a callback of Keras, which calls this method."""
        raise ConfigurationError(
            f"{type(self).__name__} is for sessions of tf.compat.v1; pass callbacks=[KerasHook(...)] to a Keras model"
        )

    set_params = set_model

    def _wrap_run(self, session: Any, run: Callable[..., Any]) -> Callable[..., Any]:
        # For a hook that has wrapped the session before, the reads of this one are no steps.
        read = functools.partial(type(session).run, session)

        @self._remember_replacement
        @functools.wraps(run)
        def observed(fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
            arguments = v1.train.SessionRunArgs(fetches, feed_dict)
            context = v1.train.SessionRunContext(original_args=arguments, session=session)
            self._prepare(context, read)
            due = self._due.get(context)
            if due is None or not due.fetches:
                fetched, results = run(fetches, feed_dict, options, run_metadata), {}
            else:
                fetched, results = run([fetches, due.fetches], feed_dict, options, run_metadata)
            self._finish(context, results)
            return fetched

        return observed

    def _remember_replacement(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Remember the replacement of a method, so that it can be removed."""
        self._replacements[method] = None
        return method

    @guarded
    def _let_go(self) -> None:
        for wrapped in list(self._wrapped):
            for name, method in list(vars(wrapped).items()):
                if inspect.isfunction(method) and method in self._replacements:
                    delattr(wrapped, name)
                    before = vars(method)["__wrapped__"]
                    if getattr(before, "__self__", None) is not wrapped:  # somebody else's replacement
                        setattr(wrapped, name, before)
        self._wrapped.clear()
        self._states.clear()
        self._due.clear()
        for collection in self.recorder.collections:
            if isinstance(collection, Collection):
                collection.forget_parts()

    # A run.

    @guarded
    def _begin(self, session: Any) -> None:
        if self.recorder.active:
            self._state_of(session)

    @guarded
    def _prepare(self, context: Any, run: Run) -> None:
        self.recorder.warn_if_copy()
        if not self.recorder.active:
            return
        state = self._state_of(context.session)
        self._count_in(state.mode)
        due = self._due[context] = DueTensors(self.recorder.clock.mode)
        if not self.recorder.plan_ahead():
            return
        if state.refresh():
            self._add_to_collections(state.graph)
            self.recorder.plan_ahead()
        self._plan_fetches(state, context.original_args, run, due)

    @guarded
    def _finish(self, context: Any, results: Mapping[str, Any]) -> None:
        due = self._due.pop(context, None)
        if due is None:
            return
        with self._finishing:
            mode = self.recorder.clock.mode
            self._count_in(due.mode)
            self.recorder.begin_step()
            for name, value in due.values.items():
                self._record(name, value, owned=True)
            for name, value in results.items():
                # If the user fetched the same tensor, its array is shared with the user.
                slices = self._gradients.slices.get(name)
                self._record(name, np.asarray(value) if slices is None else slices.dense(*value))
            self.recorder.end_step()
            self._count_in(mode)

    def _plan_fetches(self, state: SessionState, arguments: Any, run: Run, due: DueTensors) -> None:
        """Read due tensors that must be read before the run, and let the run fetch the others."""
        accessible = list(self._due_tensors(state.graph, state.run_of(arguments.fetches, arguments.feed_dict)))
        ready = state.initialized((holder for _, _, access in accessible for holder in access.needs), run)
        readable = [(name, element, access.before) for name, element, access in accessible if access.needs <= ready]
        before = {name: element for name, element, is_before in readable if is_before}
        due.values = self._read(state, before, run, arguments.feed_dict)
        due.fetches = {name: element for name, element, is_before in readable if not is_before}

    def _read(self, state: SessionState, elements: dict[str, Any], run: Run, feeds: Any) -> dict[str, Array]:
        """Read values before the user's run, without tensors that cannot be computed from its feeds."""
        try:
            return state.read(elements, run, feeds)
        except (RuntimeError, TypeError, ValueError):
            # The feeds are wrong, or the session is closed. The user's run raises the same error.
            return {}
        except tf.errors.OpError as exc:
            variables = {name: element for name, element in elements.items() if name in state.graph.variables}
            if isinstance(exc, _LOST) or len(variables) == len(elements):
                raise
            names = ", ".join(name for name in elements if name not in variables)
            text = f"{names} is not saved at a run that cannot compute it: {type(exc).__name__}"
            self.recorder.failures.warn_once(text)
            return self._read(state, variables, run, feeds)

    def _due_tensors(self, graph: GraphView, run: RunView) -> Iterator[tuple[str, Any, Access]]:
        """Yield the due tensors that can be fetched: the name, the fetch and the access."""
        for name, variable in graph.variables.items():
            if self.recorder.planner.plan(name) is not None:
                yield name, variable, Access(True, graph.holders_of(name))
        for name, tensor in graph.tensors.items():
            plan = self.recorder.planner.plan(name)
            if plan is None or (name in graph.only_by_name and not self._is_named(plan)):
                continue
            # Gradients, and tensors of `save_all`, are not computed in addition to the user's run.
            may_add = bool(plan.collections) and CollectionKeys.GRADIENTS not in plan.collections
            access = run.access(tensor, may_add)
            if access is not None:
                slices = self._gradients.slices.get(name)
                yield name, tensor if slices is None else (tensor, graph.tensors[slices.indices]), access

    def _is_named(self, plan: Plan) -> bool:
        collections = self.recorder.collections
        return any(plan.name in collections.require(each).tensor_names for each in plan.collections)

    def _record(self, name: str, value: Array, owned: bool = False) -> None:
        plan = self.recorder.planner.plan(name)
        if plan is None:
            return
        try:
            self.recorder.record(plan, value, owned=owned)
        except UnsupportedValue as exc:
            self.recorder.refuse(name, exc)

    def _count_in(self, mode: ModeKeys | None) -> None:
        if mode is not None and mode is not self.recorder.clock.mode:
            self.recorder.set_mode(mode)

    # A graph.

    def _state_of(self, session: Any) -> SessionState:
        state = self._states.get(session)
        if state is None:
            state = self._states[session] = SessionState(session.graph, self._mode_of(session.graph))
            self._add_to_collections(state.graph)
        return state

    def _mode_of(self, graph: Any) -> ModeKeys | None:
        """Return the mode of a graph's runs; None for the mode that the user has set."""
        return None

    def _add_to_collections(self, graph: GraphView) -> None:
        """Add the tensors of a graph to the built-in collections, and warn of what is missing."""
        biases = {name for name in graph.trainable if "bias" in name.rpartition("/")[2]}
        for collection, names in (
            (CollectionKeys.BIASES, biases),
            (CollectionKeys.WEIGHTS, graph.trainable - biases),
            (CollectionKeys.LOSSES, graph.losses | self._gradients.losses),
            (CollectionKeys.TENSORFLOW_SUMMARIES, graph.summarized),
        ):
            self.recorder.collections.require(collection).add_tensor_names(names)
            self._known_names |= names
        for name, variable in self._gradients.names.items():
            self.recorder.collections.add_gradient(name, variable)
            self._known_names.add(name)
        self._warn_of_gradients(graph)
        self._warn_of_missing(graph)

    def _warn_of_gradients(self, graph: GraphView) -> None:
        wanted = CollectionKeys.GRADIENTS in self.recorder.collections.saved_names
        if wanted and graph.updates_weights and not self._gradients.names:
            self.recorder.failures.warn_once(
                "no gradients are saved, because no optimizer is wrapped; add the line "
                "`optimizer = hook.wrap_optimizer(optimizer)` before `optimizer.minimize(loss)`"
            )

    def _warn_of_missing(self, graph: GraphView) -> None:
        for collection in self.recorder.collections.saved():
            passed = collection.added if isinstance(collection, Collection) else set()
            for name in sorted(collection.tensor_names - passed - self._known_names):
                if name not in graph.tensors and name not in graph.variables:
                    self._known_names.add(name)  # one warning is enough
                    self.recorder.failures.warn_once(
                        f"collection {collection.name!r} includes {name!r}, but {graph.why_not(name)}"
                    )
