"""Callbacks in the graph of a `tf.function`, whose Python code runs only during tracing.

In each execution, a first callback begins the step and returns whether anything is due. Recording callbacks are in
branches that are taken only if something is. All callbacks of a replica run in the order of tracing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..core.recorder import Recorder, guarded
from ..library.identity import IdentityMap
from .backend import graph, variable_array
from .routers import plan_of

Arrays = Mapping[str, Any]


class GraphCallback:
    """The access to one replica's recorder: immediate in eager execution, else by callbacks in the graph."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # By graph, the names of its last callback, and of the tensor that says whether anything is due at its step.
        self._last = IdentityMap[Any, str]()
        self._due = IdentityMap[Any, str]()

    def begin_step(self) -> None:
        """Begin a step now, or at each execution of the graph that is being built."""
        building = graph()
        if building is None:
            self._begin()
        else:
            self._due[building] = self._chained(building, lambda: _callback(self._begin_and_check, []))

    @property
    def may_be_due(self) -> bool:
        """True if anything is due at the open step; in a graph, if anything may ever be due."""
        return self.recorder.saving if graph() is None else self.recorder.active

    def record_due(self, values: Arrays) -> None:
        """Record the due tensors, and the current values of due variables, at the open step."""
        if graph() is None:
            self._record(values)
        else:
            self.call_if_due(self._record, {n: each for n, each in values.items() if self.recorder.may_save([n])})

    def copies_if_due(self, variables: Arrays) -> dict[str, Any]:
        """Return copies of the current values of variables; in a graph, none in executions without a due tensor."""
        building = graph()
        if building is None:
            return {name: variable_array(variable).copy() for name, variable in variables.items()}
        import tensorflow as tf

        due = self._is_due()

        def copy() -> list[Any]:
            return [tf.identity(_read(variable)) for variable in variables.values()]

        def nothing() -> list[Any]:
            return [tf.zeros([0], _read(variable).dtype) for variable in variables.values()]

        return dict(zip(variables, copy() if due is None else tf.cond(due, copy, nothing), strict=True))

    def call_if_due(self, save: Callable[[Arrays], None], values: Arrays) -> None:
        """Call `save` with the arrays of tensors and variables, now or in executions in which something is due."""
        if graph() is None:
            save({name: variable_array(value) if is_variable(value) else value for name, value in values.items()})
            return
        names = tuple(values)
        self._add(lambda *arrays: save(dict(zip(names, arrays, strict=True))), names, values, self._is_due())

    def call(self, save: Callable[[Any], None], value: Any) -> None:
        """Call `save` with the array of a tensor in each execution of the graph, even if nothing is due."""
        self._add(save, ("value",), {"value": value}, None)

    def _add(self, save: Callable[..., None], names: tuple[str, ...], values: Arrays, due: Any) -> None:
        import tensorflow as tf

        if not names:
            return

        def call_back() -> Any:
            return _callback(partial(self._guard, save), [_read(values[name]) for name in names])

        building = graph()
        self._chained(
            building, call_back if due is None else lambda: tf.cond(due, call_back, lambda: tf.constant(value=False))
        )

    def _is_due(self) -> Any:
        """Return the tensor that says whether anything is due, from the callback in this graph or in an outer one."""
        return next((each.get_tensor_by_name(self._due[each]) for each in _graphs() if each in self._due), None)

    def _chained(self, building: Any, make: Callable[[], Any]) -> str:
        import tensorflow as tf

        last = self._last.get(building)
        with tf.control_dependencies([] if last is None else [building.get_tensor_by_name(last)]):
            self._last[building] = make().name
        return self._last[building]

    # Python functions that each execution calls.

    @guarded
    def _begin(self) -> None:
        self.recorder.begin_step()

    def _begin_and_check(self) -> bool:
        self._begin()
        return self.recorder.saving

    @guarded
    def _record(self, values: Arrays) -> None:
        for name, value in values.items():
            plan = plan_of(self.recorder, name) if self.recorder.saving else None
            if plan is not None:
                self.recorder.record(plan, variable_array(value) if is_variable(value) else np.asarray(value))

    @guarded
    def _guard(self, save: Callable[..., None], *arrays: Any) -> None:
        save(*arrays)


def is_variable(value: Any) -> bool:
    """Return whether a value is a variable."""
    return hasattr(value, "assign") or hasattr(value, "read_value")


def compiled_by_xla() -> bool:
    """Return whether XLA compiles the whole function that is being traced, so that it cannot call Python."""
    for each in _graphs():
        context = each._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
    return False


def _graphs() -> Iterator[Any]:
    """Yield the graph that is being built, and those around it."""
    each = graph()
    while each is not None:
        yield each
        each = getattr(each, "outer_graph", None)


def _callback(function: Callable[..., Any], tensors: list[Any]) -> Any:
    """Add an operation to the graph that calls the function with arrays and returns its result as a bool."""
    import tensorflow as tf

    return tf.numpy_function(lambda *arrays: np.bool_(bool(function(*arrays))), tensors, tf.bool)


def _read(value: Any) -> Any:
    if not is_variable(value):
        return value
    variable = value if hasattr(value, "read_value") else value.value
    return variable.read_value()
