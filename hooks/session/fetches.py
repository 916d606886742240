"""The fetches of one run of a session: the tensors that it computes, and others that it can fetch.

Additional fetches must have no effect: they need no further placeholder, change no further state, and consume no batch
of data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .graph import READS, GraphView, Operation, Tensor, elements, takes_reference


class Access(NamedTuple):
    """A way to fetch the value of a tensor."""

    before: bool
    """True if a separate run before the user's run fetches it."""
    needs: frozenset[str]
    """The operations of variables that must be initialized."""


FREE = Access(False, frozenset())
"""The run computes the tensor anyway."""


class Signature(NamedTuple):
    """The fetches and feeds of a run. Runs with the same signature compute the same tensors."""

    fetched: frozenset[str]
    fed: frozenset[str]


def signature(graph: Any, fetches: Any, feeds: Any) -> Signature:
    """Return the signature of a run with these arguments of `session.run`."""
    fetched = frozenset(element.name for element in elements(fetches, graph))
    fed = frozenset(element.name for key in feeds or () for element in elements(key, graph))
    return Signature(fetched, fed)


class RunView:
    """The tensors that the runs of one signature compute in a graph."""

    def __init__(self, graph: GraphView, signature: Signature) -> None:
        self._graph, self._fed = graph, signature.fed
        self._accesses: dict[tuple[str, bool], Access | None] = {}
        starts = [graph.graph.as_graph_element(name) for name in signature.fetched - signature.fed]
        # The user fetches operations, or tensors, which their operations compute.
        self._computed = self._reach([getattr(start, "op", start) for start in starts])
        self._changes_state = any(map(graph.changes_state, self._computed.values()))
        self._written = self._find_written()

    def access(self, tensor: Tensor, may_add: bool) -> Access | None:
        """Return the way to fetch a tensor; None if there is none.

        Unless `may_add`, only tensors that the run computes anyway can be fetched.
        """
        key = (tensor.name, may_add)
        if key not in self._accesses:
            self._accesses[key] = self._find_access(tensor, may_add)
        return self._accesses[key]

    def _find_access(self, tensor: Tensor, may_add: bool) -> Access | None:
        if tensor.name in self._fed or tensor.op.name in self._computed:
            return FREE
        if not may_add:
            return None
        # A run that changes nothing may have no proper labels, and an error of the loss would end it.
        if self._changes_state:
            needs = self._needs(tensor, beyond_the_run=True)
            if needs is not None and not needs & self._written:
                return Access(False, needs)
        # Within the run it is undefined whether a variable is read before or after its update.
        needs = self._needs(tensor, beyond_the_run=False)
        return None if needs is None else Access(True, needs)

    def _needs(self, tensor: Tensor, beyond_the_run: bool) -> frozenset[str] | None:
        """Return the operations whose variables are read to compute a tensor.

        None if it cannot be computed without changing state. With `beyond_the_run`, operations that the run computes
        anyway are not counted.
        """
        known = self._computed if beyond_the_run else {}
        found = self._reach([tensor.op], known)
        if any(map(self._graph.changes_state, found.values())):
            return None
        inputs = (tensor.op.name for operation in found.values() for tensor in operation.inputs)
        return frozenset(name for name in inputs if name in self._graph.holders)

    def _reach(self, starts: Iterable[Operation], known: dict[str, Operation] | None = None) -> dict[str, Operation]:
        """Return the operations, by name, that `starts` depend on, including `starts`, without `known` ones."""
        reached: dict[str, Operation] = {}
        waiting = list(starts)
        while waiting:
            operation = waiting.pop()
            if operation.name in reached or (known and operation.name in known):
                continue
            reached[operation.name] = operation
            waiting += [tensor.op for tensor in operation.inputs if tensor.name not in self._fed]
            waiting += operation.control_inputs
        return reached

    def _find_written(self) -> frozenset[str]:
        """Return the names of the operations whose variables the run may change."""
        return frozenset(
            tensor.op.name
            for operation in self._computed.values()
            if operation.type not in READS
            for tensor in operation.inputs
            # An operation that takes the value of a reference variable only reads it.
            if tensor.op.name in self._graph.holders and (tensor.op.type == "VarHandleOp" or takes_reference(operation))
        )
