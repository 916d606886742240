"""The hook for JAX: the training loop passes trees to it.

import tensortrial.hooks.jax as tt

hook = tt.Hook("runs/net")
for step, batch in enumerate(batches):
    params, state, loss, gradients = train_step(params, state, batch)
    hook.log({"loss": loss}, step=step)
    hook.save_tree("gradients", gradients, step)
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tensortrial.config.collection import LOSS_NAMES, CollectionKeys, check_collection_name
from tensortrial.dtypes import Array, storable
from tensortrial.errors import ConfigurationError, UnsupportedValue, importing
from tensortrial.format.record import Plan, Record, Step
from tensortrial.mode import ModeKeys

from ..core import current_hook
from ..core.called_hook import CalledHook
from ..core.called_steps import step_number
from ..core.configuration.options import OF_NETWORKS, Framework, HookOptions, accepts_fields_of
from ..core.log import logger
from ..core.process.rank import Rank, rank_of_process
from ..core.recorder import Recorder, guarded
from ..core.user_values import as_nanoseconds, check_dictionary
from ..library.versions import check_version

with importing("jax", "jax", "the JAX hook"):
    import jax
    import jaxlib

from .arrays import column_later, number_later, parts_of, traced
from .trees import TreeNames, path_of

OLDEST_JAX, NEWEST_TESTED_JAX = "0.5.3", "0.10"

_FRAMEWORK = Framework(
    "jax",
    {"jax": jax.__version__, "jaxlib": jaxlib.__version__},
    builtin=[*OF_NETWORKS, CollectionKeys.UPDATES, CollectionKeys.OPTIMIZER_VARIABLES],
    always_saved=[CollectionKeys.LOSSES],
    errors_of_training=(jax.errors.JaxRuntimeError,),
    is_ordered=False,
)


class Hook(CalledHook):
    """A hook that saves the trees, arrays and numbers that a JAX training loop passes to it.

    `save_tree` saves the leaves of a tree at the steps of the save configuration; `log`, `save_scalar` and
    `save_tensor` save at each step. None of them waits for a device: arrays are copied on the device, and another
    thread fetches the copies.

    `help(Hook.__init__)` lists the arguments, which every hook has. Without `include_collections`,
    `include_regex` and `save_all`, each collection that is passed to `save_tree` is saved; with one of them, only the
    named tensors. After construction no error of the hook reaches training: the hook logs the first one and turns
    itself off (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has an invalid value.
        RunExists: out_dir holds a run already.
        UnsupportedFramework: JAX is too old.
    """

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        check_version("jax", jax.__version__, OLDEST_JAX, NEWEST_TESTED_JAX)
        self.recorder = Recorder(options, _FRAMEWORK, _rank)
        self.recorder.collections.require(CollectionKeys.LOSSES).include(LOSS_NAMES)
        is_chosen = options.include_collections is not None or options.include_regex or options.save_all
        self._includes = not is_chosen
        self._trees = TreeNames(self.recorder.refuse)
        current_hook.made(self)

    @guarded
    def save_tree(
        self, collection: str, tree: Any, step: int | None = None, *, mode: ModeKeys | str | None = None
    ) -> None:
        """Save the leaves of a tree, if their collection is due at the step.

        A leaf's name is its path, with slashes: `gradient/Dense_0/kernel`, `update/…`, `Dense_0/kernel` in `weights`,
        `biases`, `losses` and `metrics`, and `<collection>/…` in any other collection. None is no leaf.

        Args:
            collection: The collection of the leaves: "weights", "gradients", "updates", or a name of your own.
            tree: A pytree: dictionaries, lists, named tuples, dataclasses, states of Optax and Flax.
            step: The number of a step in its mode, also of a past one. Default: the open step, or the next one if the
                open step has a tree of this collection.
            mode: The mode that the step is counted in. Default: the current one.
        """
        self.recorder.warn_if_copy()
        check_collection_name(collection)
        marker = f"tree of {collection}"
        if step is None:
            self._begin_call((marker,))
        if self._includes and self.recorder.active:
            self.recorder.collections.include([collection])
        with self.recorder.saving_at(step, mode) as at:
            if at is not None and self.recorder.saving:
                self._save_leaves(collection, tree, at, step)
        if step is None:
            self._end_call((marker,))

    @guarded
    def log_stacked(
        self, values: Mapping[str, Any], first_step: int = 0, *, mode: ModeKeys | str | None = None
    ) -> None:
        """Save the numbers of many steps, as `jax.lax.scan` returns them.

        Args:
            values: Arrays of shape (steps,) by the names of their numbers.
            first_step: The number of the first of these steps in its mode.
            mode: The mode that the steps are counted in. Default: the current one.
        """
        check_dictionary(values, "arrays")
        first = step_number(first_step)
        columns: dict[str, tuple[int, Callable[[], Any]]] = {}
        for name, value in values.items():
            try:
                columns[name] = column_later(value)
            except UnsupportedValue as exc:
                self.recorder.refuse(name, exc)
        for row in range(max((length for length, _ in columns.values()), default=0)):
            for name, (length, fetch) in columns.items():
                if row < length:
                    self._number(name, partial(_element, fetch, row), False, None, first + row, mode)

    @guarded
    def log_in_jit(
        self, values: Mapping[str, Any], *, step: Any = None, mode: ModeKeys | str | None = None, ordered: bool = True
    ) -> None:
        """Save numbers from inside a function that JAX traces: `jit`, `scan`, `while_loop`.

        The compiled function calls the hook each time it runs, by `jax.debug.callback`. If the hook is off while the
        function is traced, the function does not call it.

        Args:
            values: Numbers by their names.
            step: The number of the step, which may be traced as well, such as the counter of a loop. Default: as `log`.
            mode: The mode that the step is counted in. Default: the current one.
            ordered: Keep the order of the calls. JAX cannot do that for a function on several devices.
        """
        check_dictionary(values, "numbers")
        if self.recorder.active:
            jax.debug.callback(_Callback(self, "log", mode), dict(values), step, ordered=ordered)

    @guarded
    def save_tree_in_jit(
        self, collection: str, tree: Any, step: Any = None, *, mode: ModeKeys | str | None = None, ordered: bool = True
    ) -> None:
        """Save the leaves of a tree from inside a function that JAX traces; see `log_in_jit` and `save_tree`.

        The values are copied to the host each time the function runs, even if nothing is due. To avoid this, return the
        tree from the function, or make the call in a branch of `jax.lax.cond`.

        Args:
            collection: The collection of the leaves.
            tree: A pytree.
            step: The number of the step, which may be traced as well. Default: as `save_tree`.
            mode: The mode that the step is counted in. Default: the current one.
            ordered: Keep the order of the calls. JAX cannot do that for a function on several devices.
        """
        check_collection_name(collection)
        if self.recorder.active:
            jax.debug.callback(_Callback(self, "save_tree", mode, collection), tree, step, ordered=ordered)

    def _save_leaves(self, collection: str, tree: Any, at: Step, number: Any) -> None:
        recorder = self.recorder
        try:
            leaves, names, are_new = self._trees.flatten(collection, tree)
        except UnsupportedValue as exc:
            recorder.refuse(collection, exc)
            return
        if are_new:
            self._add_names(collection, [name for name in names if name is not None])
            recorder.replan(at, number)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            recorder.refuse(collection, traced())
            return
        for name, leaf in zip(names, leaves, strict=True):
            plan = None if name is None else recorder.planner.plan(name)
            if plan is not None:
                self._save_leaf(plan, leaf, at)

    def _add_names(self, collection: str, names: list[str]) -> None:
        collections = self.recorder.collections
        if collection == CollectionKeys.GRADIENTS:
            for name in names:
                collections.add_gradient(name, path_of(name, collection))
        else:
            collections.require(collection).add_tensor_names(names)

    def _save_leaf(self, plan: Plan, leaf: Any, at: Step) -> None:
        try:
            for part in parts_of(leaf):
                named = replace(plan, name=plan.name + part.suffix) if part.suffix else plan
                self._record_later(named, part.fetch, part.nbytes, at)
        except UnsupportedValue as exc:
            self.recorder.refuse(plan.name, exc)

    def _save_scalars(
        self, numbers: Iterable[tuple[str, Any]], sm_metric: bool, timestamp: float | None, step: Any, mode: Any
    ) -> None:
        self.recorder.warn_if_copy()
        here = []
        for name, value in numbers:
            if not isinstance(value, jax.Array) or (value.size != 1 and not isinstance(value, jax.core.Tracer)):
                here.append((name, value))
                continue
            try:
                saved_at = None if timestamp is None else as_nanoseconds(timestamp)
                fetch = number_later(value)
            except UnsupportedValue as exc:
                self.recorder.refuse(name, exc)
            else:
                self._number(name, fetch, sm_metric, saved_at, step, mode)
        super()._save_scalars(here, sm_metric, timestamp, step, mode)

    def _number(
        self, name: str, fetch: Callable[[], float], sm_metric: bool, saved_at: int | None, step: Any, mode: Any
    ) -> None:
        try:
            plan = self.recorder.scalar_plan(name, sm_metric)
        except UnsupportedValue as exc:
            self.recorder.refuse(name, exc)
            return
        with self.recorder.saving_at(step, mode, plans=False) as at:
            if at is not None:
                self._record_later(plan, fetch, 8, at, saved_at)

    def _save_tensor(
        self, name: str, value: Any, collections_to_write: Iterable[str] | str, step: Any, mode: Any
    ) -> None:
        self.recorder.warn_if_copy()
        if not isinstance(value, jax.Array):
            super()._save_tensor(name, value, collections_to_write, step, mode)
            return
        try:
            parts = list(parts_of(value))
            with self.recorder.saving_at(step, mode, plans=False) as at:
                for part in parts if at is not None else ():
                    plan = self.recorder.tensor_plan(name + part.suffix, collections_to_write)
                    self._record_later(plan, part.fetch, part.nbytes, at)
        except ConfigurationError as exc:
            self.recorder.refuse(name, exc)

    def _record_later(
        self, plan: Plan, fetch: Callable[[], Array | float], nbytes: int, at: Step | None, saved_at: int | None = None
    ) -> None:
        """Keep a value that the writer's thread fetches once, when it needs it. Nothing else may change the value."""
        if self.recorder.active:
            # A placeholder that counts as this many bytes, but takes none, until the value arrives.
            placeholder = np.broadcast_to(np.zeros((), np.uint8), (nbytes,))
            record = Record(plan, placeholder, time.time_ns() if saved_at is None else saved_at)
            record.ready = partial(_fetch, record, fetch)
            self.recorder.add(record, at)

    @guarded
    def _let_go(self) -> None:
        self._trees.forget()


def _fetch(record: Record, fetch: Callable[[], Array | float]) -> None:
    value = fetch()
    record.value = value if isinstance(value, float) else storable(value)
    record.ready = None


class _Callback:
    """The callback in a compiled function. It calls a method of the hook as long as the hook exists.

    JAX keeps compiled functions alive, and these must not keep the hook alive.
    """

    def __init__(self, hook: Hook, method: str, mode: Any, *arguments: Any) -> None:
        self._hook, self._method, self._mode, self._arguments = weakref.ref(hook), method, mode, arguments
        self._newest: dict[object, int] = {}
        """The newest step of the calls, by mode."""
        self._has_warned = False

    def __call__(self, values: Any, step: Any) -> None:
        hook = self._hook()
        if hook is not None and hook.recorder.active:
            # Copies, because their memory belongs to the running function.
            values, step = jax.tree_util.tree_map(np.array, (values, step))
            getattr(hook, self._method)(*self._arguments, values, step=step, mode=self._mode)
            if step is not None and not step.ndim:
                self._note(self._mode or hook.mode, step)

    def _note(self, mode: object, step: int) -> None:
        """Log, once, that the function was called again at a step, as vmap and pmap do for each element."""
        if step > self._newest.get(mode, -1):
            self._newest[mode] = step
        elif not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s_in_jit was called again at step %d, and its last value is kept: under vmap and pmap each "
                "element makes the call; to save the values of all, return them from the function",
                self._method,
                step,
            )


def _element(fetch: Callable[[], Any], row: int) -> float:
    return float(fetch()[row])


get_hook = current_hook.getter(Hook.create_from_json_file)


def _rank() -> Rank:
    # Before `initialize`, jax.process_index() would start the backends, and `initialize` would then fail.
    if jax.distributed.is_initialized():
        return Rank(jax.process_index(), jax.process_count())
    return rank_of_process()
