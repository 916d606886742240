"""The contents of a graph of tf.compat.v1: its variables, and the tensors that a run can fetch.

The scan adds nothing to the graph: another operation would change the seeds of random operations created later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

import tensorflow as tf

v1 = tf.compat.v1

Operation: TypeAlias = Any
Tensor: TypeAlias = Any

# Operations that hold a variable, and operations that read one without changing it.
_HOLDERS = frozenset({"VarHandleOp", "Variable", "VariableV2"})
READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"})
_FLAGS = frozenset({"IsVariableInitialized", "VarIsInitializedOp"})
_HARMLESS = _HOLDERS | READS | _FLAGS
# Operations that enter or leave a branch or a loop, where a tensor may have no value or several.
_ENTRIES = frozenset({"Enter", "RefEnter"})
_SWITCHES = frozenset({"RefSwitch", "Switch"})
_MERGES = frozenset({"Merge", "RefMerge"})
_EXITS = frozenset({"Exit", "RefExit"})
# Operations that run the user's code, fail if their input is not finite, or must be fed.
_UNWANTED = frozenset({"CheckNumerics", "CheckNumericsV2", "Placeholder", "PlaceholderV2", "PyFuncStateless"})
# The index of the input with the numbers, by the type of summary operation.
_SUMMARIES = {
    "AudioSummary": 1,
    "AudioSummaryV2": 1,
    "HistogramSummary": 1,
    "ImageSummary": 1,
    "ScalarSummary": 1,
    "TensorSummary": 0,
    "TensorSummaryV2": 1,
}
_NOT_NUMBERS = frozenset({tf.resource, tf.string, tf.variant})


class GraphView:
    """The contents of a graph at the time of the scan."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self._version = graph.version
        self._stateful: dict[str, bool] = {}
        self.variables = _variables(graph)
        """The fetches for the values of variables, by name."""
        self.tensors: dict[str, Tensor] = {}
        """The tensors that a run can fetch if it computes them, by name."""
        self.only_by_name: set[str] = set()
        """The tensors that are saved only if a collection has their name: constants, and reads of variables."""
        self.holders: dict[str, Operation] = {}
        """The operations that hold a variable, by name."""
        self.flags: dict[str, Tensor] = {}
        """Boolean tensors, True if a variable is initialized, by the name of the variable's operation."""
        self.summarized: set[str] = set()
        """The names of the inputs of summaries."""
        self.updates_weights = bool(graph.get_collection(v1.GraphKeys.TRAIN_OP))
        """True if the graph has an operation of an optimizer."""
        self._scan(graph.get_operations())

    @property
    def is_stale(self) -> bool:
        """True if the graph has grown since the scan."""
        return bool(self.graph.version != self._version)

    @property
    def trainable(self) -> set[str]:
        """The names of the trainable variables."""
        return {variable.name for variable in _of(self.graph, v1.GraphKeys.TRAINABLE_VARIABLES)}

    @property
    def losses(self) -> set[str]:
        """The names of the losses that tf.compat.v1.losses and estimators registered."""
        return {loss.name for loss in self.graph.get_collection(v1.GraphKeys.LOSSES) if tf.is_tensor(loss)}

    def holders_of(self, variable: str) -> frozenset[str]:
        """Return the names of the operations that hold a variable: one, or one for each device of a strategy."""
        found = self.variables[variable]
        return frozenset(each.op.name for each in getattr(found, "values", None) or (found,))

    def why_not(self, name: str) -> str:
        """Return why a tensor of this name cannot be saved."""
        try:
            self.graph.as_graph_element(name, allow_operation=False)
        except (KeyError, ValueError):
            near = get_close_matches(name, [*self.variables, *self.tensors], n=1)
            return "the graph has no such tensor" + (f"; did you mean {near[0]!r}?" if near else "")
        return "it cannot be saved: it holds no numbers, or is inside a loop or a branch"

    def reads(self, operation: Operation) -> bool:
        """Return whether an operation only reads a variable."""
        if operation.type in READS:
            return True
        return operation.type == "Identity" and operation.inputs[0].op.name in self.holders

    def changes_state(self, operation: Operation) -> bool:
        """Return whether running an operation that is not fed has an effect, or may fail."""
        if operation.type in _HARMLESS:
            return False
        is_stateful = self._stateful.get(operation.type)
        if is_stateful is None:
            is_stateful = operation.op_def.is_stateful or takes_reference(operation)
            self._stateful[operation.type] = is_stateful
        return is_stateful or operation.type in _UNWANTED

    def _scan(self, operations: Iterable[Operation]) -> None:
        depths: dict[str, int] = {}
        # Operations are in topological order, except for the back edges of loops.
        for operation in operations:
            depth = depths[operation.name] = _depth(operation, depths)
            if depth:
                continue
            if operation.type in _HOLDERS:
                self.holders[operation.name] = operation
            elif operation.type in _FLAGS:
                self.flags[operation.inputs[0].op.name] = operation.outputs[0]
            elif operation.type in _SUMMARIES:
                self.summarized.add(operation.inputs[_SUMMARIES[operation.type]].name)
            else:
                self._add(operation)

    def _add(self, operation: Operation) -> None:
        only_by_name = operation.type == "Const" or self.reads(operation)
        for tensor in operation.outputs:
            # A reference has the value of its variable at the time of reading.
            is_reference = tensor.dtype.base_dtype != tensor.dtype
            if not is_reference and tensor.dtype not in _NOT_NUMBERS and self.graph.is_fetchable(tensor):
                self.tensors[tensor.name] = tensor
                if only_by_name:
                    self.only_by_name.add(tensor.name)


def elements(value: Any, graph: Any) -> Iterator[Operation | Tensor]:
    """Yield the operations and tensors in the fetches of `session.run`, or in a key of its feeds."""
    try:
        yield graph.as_graph_element(value)
    except (KeyError, TypeError, ValueError):
        for each in _parts(value):
            if each is not value:
                yield from elements(each, graph)


def takes_reference(operation: Operation) -> bool:
    """Return whether an operation takes a reference variable to change it."""
    return any(argument.is_ref for argument in operation.op_def.input_arg)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, Mapping):
        return list(value.values())
    if hasattr(type(value), "__attrs_attrs__"):
        return [getattr(value, attribute.name) for attribute in type(value).__attrs_attrs__]
    return tf.nest.flatten(value, expand_composites=True)


def _variables(graph: Any) -> dict[str, Any]:
    keys = v1.GraphKeys
    found = [_of(graph, key) for key in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES, keys.TRAINABLE_VARIABLES)]
    known = {variable.name: variable for variables in found for variable in variables}
    return {name: variable for name, variable in known.items() if variable.dtype.base_dtype not in _NOT_NUMBERS}


def _of(graph: Any, key: str) -> list[Any]:
    # A collection of a graph may contain any object.
    return [each for each in graph.get_collection(key) if isinstance(each, tf.Variable)]


def _depth(operation: Operation, depths: Mapping[str, int]) -> int:
    """Return the number of branches and loops of control flow v1 around an operation. A loop counts twice."""
    before = [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
    depth = max((depths.get(each.name, 0) for each in before), default=0)
    if operation.type in _ENTRIES or operation.type in _SWITCHES:
        return depth + 1
    if operation.type in _EXITS:
        return depth - 2
    # A loop also begins with a merge, of its initial values and those of the last iteration.
    if operation.type in _MERGES and before[0].type not in _ENTRIES:
        return depth - 1
    return depth
