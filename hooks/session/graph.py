"""What a graph of tf.compat.v1 holds: its variables, and the tensors that a run can be asked for.

Looking adds nothing to the graph: an operation more would change the seeds of the random ones made after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

import tensorflow as tf

v1 = tf.compat.v1

Operation: TypeAlias = Any
Tensor: TypeAlias = Any

# What holds a variable, and what takes one without changing it.
_HOLDERS = frozenset({"VarHandleOp", "Variable", "VariableV2"})
READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"})
_FLAGS = frozenset({"IsVariableInitialized", "VarIsInitializedOp"})
_HARMLESS = _HOLDERS | READS | _FLAGS
# The way into a branch or a loop, and the way out: what is inside may give nothing, or more than one value.
_ENTRIES = frozenset({"Enter", "RefEnter"})
_SWITCHES = frozenset({"RefSwitch", "Switch"})
_MERGES = frozenset({"Merge", "RefMerge"})
_EXITS = frozenset({"Exit", "RefExit"})
# What runs code of the user's, or fails where its input is bad.
_UNWANTED = frozenset({"CheckNumerics", "CheckNumericsV2", "PyFuncStateless"})
_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})
# A summary's numbers, by the kind of operation that takes them.
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
    """A graph as it was when it was looked at."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self._version = graph.version
        self._kinds: dict[str, bool] = {}
        self.variables = _variables(graph)
        """By name: what a session gives as the variable's value when asked for it."""
        self.tensors: dict[str, Tensor] = {}
        """By name: what a run can be asked for, if it computes it."""
        self.unasked: set[str] = set()
        """Those of them that are saved only if they are asked for by name: constants, and reads of variables."""
        self.holders: dict[str, Operation] = {}
        """The operations that hold a variable, by name."""
        self.flags: dict[str, Tensor] = {}
        """Says whether a variable is initialised, by the name of its holder, where the graph has such a tensor."""
        self.summarized: set[str] = set()
        """The names of what goes into summaries."""
        self.updates_weights = bool(graph.get_collection(v1.GraphKeys.TRAIN_OP))
        """Whether an optimizer was asked to."""
        self._look(graph.get_operations())

    @property
    def is_stale(self) -> bool:
        """Whether the graph has grown since."""
        return bool(self.graph.version != self._version)

    @property
    def trainable(self) -> set[str]:
        """The names of the trainable variables."""
        return {variable.name for variable in _of(self.graph, v1.GraphKeys.TRAINABLE_VARIABLES)}

    @property
    def losses(self) -> set[str]:
        """The names of what tf.compat.v1.losses and estimators call a loss."""
        return {loss.name for loss in self.graph.get_collection(v1.GraphKeys.LOSSES) if tf.is_tensor(loss)}

    def holders_of(self, variable: str) -> frozenset[str]:
        """The operations that hold a variable; those of a distribution strategy have one a device."""
        found = self.variables[variable]
        return frozenset(each.op.name for each in getattr(found, "values", None) or (found,))

    def why_not(self, name: str) -> str:
        """Why there is nothing to save under a name."""
        try:
            self.graph.as_graph_element(name, allow_operation=False)
        except (KeyError, ValueError):
            near = get_close_matches(name, [*self.variables, *self.tensors], n=1)
            return "the graph has no such tensor" + (f"; did you mean {near[0]!r}?" if near else "")
        return "it cannot be saved: it holds no numbers, or is inside a loop or a branch"

    def reads(self, operation: Operation) -> bool:
        """Whether all an operation does is to give the value of a variable."""
        if operation.type in READS:
            return True
        return operation.type == "Identity" and operation.inputs[0].op.name in self.holders

    def changes_state(self, operation: Operation) -> bool:
        """Whether running an operation once more, or at all, could be noticed by anybody."""
        if operation.type in _HARMLESS:
            return False
        kind = self._kinds.get(operation.type)
        if kind is None:
            kind = self._kinds[operation.type] = operation.op_def.is_stateful or takes_reference(operation)
        return kind or operation.type in _UNWANTED

    def is_placeholder(self, operation: Operation) -> bool:
        return operation.type in _PLACEHOLDERS

    def _look(self, operations: Iterable[Operation]) -> None:
        depths: dict[str, int] = {}
        # An operation comes after what it depends on, but for the way back in a loop.
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
                self._take(operation)

    def _take(self, operation: Operation) -> None:
        unasked = operation.type == "Const" or self.reads(operation)
        for tensor in operation.outputs:
            # The value of a reference is whatever the variable has become meanwhile.
            is_reference = tensor.dtype.base_dtype != tensor.dtype
            if not is_reference and tensor.dtype not in _NOT_NUMBERS and self.graph.is_fetchable(tensor):
                self.tensors[tensor.name] = tensor
                if unasked:
                    self.unasked.add(tensor.name)


def elements(value: Any, graph: Any) -> Iterator[Operation | Tensor]:
    """The operations and tensors in what `session.run` takes for fetches, or as a key of its feeds."""
    try:
        yield graph.as_graph_element(value)
    except (KeyError, TypeError, ValueError):
        for each in _parts(value):
            if each is not value:
                yield from elements(each, graph)


def takes_reference(operation: Operation) -> bool:
    """Whether an operation takes a variable of the old kind to change it."""
    return any(argument.is_ref for argument in operation.op_def.input_arg)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, Mapping):
        return list(value.values())
    if hasattr(type(value), "__attrs_attrs__"):
        return [getattr(value, attribute.name) for attribute in type(value).__attrs_attrs__]
    parts: list[Any] = tf.nest.flatten(value, expand_composites=True)
    return parts


def _variables(graph: Any) -> dict[str, Any]:
    keys = v1.GraphKeys
    found = [_of(graph, key) for key in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES, keys.TRAINABLE_VARIABLES)]
    known = {variable.name: variable for variables in found for variable in variables}
    return {name: variable for name, variable in known.items() if variable.dtype.base_dtype not in _NOT_NUMBERS}


def _of(graph: Any, key: str) -> list[Any]:
    # A collection of a graph can hold anything.
    return [each for each in graph.get_collection(key) if isinstance(each, tf.Variable)]


def _depth(operation: Operation, depths: Mapping[str, int]) -> int:
    """How many branches and loops of the old kind an operation is inside of; a loop counts twice."""
    before = [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
    depth = max((depths.get(each.name, 0) for each in before), default=0)
    if operation.type in _ENTRIES or operation.type in _SWITCHES:
        return depth + 1
    if operation.type in _EXITS:
        return depth - 2
    # A loop begins with a merge, too: of what enters it and what comes round.
    if operation.type in _MERGES and before[0].type not in _ENTRIES:
        return depth - 1
    return depth
