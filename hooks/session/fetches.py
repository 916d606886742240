"""What one run of a session computes, and what else it can be asked for.

A run may be asked for more than the user fetches, but must do nothing more that anybody could notice: no placeholder is
missing, no state changes that would not have changed, no batch of data is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .graph import READS, GraphView, Operation, Tensor, elements, takes_reference


class Way(NamedTuple):
    """How the value of a tensor can be had."""

    before: bool
    """In a run of its own before the user's, not within it."""
    needs: frozenset[str]
    """The operations that hold the variables that must be initialised."""


FREE = Way(False, frozenset())


class Signature(NamedTuple):
    """Runs of the same signature compute the same."""

    fetched: frozenset[str]
    fed: frozenset[str]


def signature(graph: Any, fetches: Any, feeds: Any) -> Signature:
    """The signature of a run with these arguments of `session.run`."""
    fetched = frozenset(element.name for element in elements(fetches, graph))
    fed = frozenset(element.name for key in feeds or () for element in elements(key, graph))
    return Signature(fetched, fed)


class RunView:
    """A run of some signature in a graph."""

    def __init__(self, graph: GraphView, signature: Signature) -> None:
        self._graph, self._fed = graph, signature.fed
        self._ways: dict[tuple[str, bool], Way | None] = {}
        starts = [graph.graph.as_graph_element(name) for name in signature.fetched - signature.fed]
        # An operation is one itself, a tensor has one.
        self._computed = self._reach([getattr(start, "op", start) for start in starts])
        self._written = self._find_written()

    def way(self, tensor: Tensor, may_add: bool) -> Way | None:
        """How to have the value of a tensor; None if it cannot be had, or, unless `may_add`, if the run does not
        compute it anyway."""
        key = (tensor.name, may_add)
        if key not in self._ways:
            self._ways[key] = self._find_way(tensor, may_add)
        return self._ways[key]

    def _find_way(self, tensor: Tensor, may_add: bool) -> Way | None:
        if tensor.name in self._fed or tensor.op.name in self._computed:
            return FREE
        if not may_add:
            return None
        needs = self._needs(tensor, beyond_the_run=True)
        if needs is not None and not needs & self._written:
            return Way(False, needs)
        # Within the run nobody could say whether a variable is read before its update or after.
        needs = self._needs(tensor, beyond_the_run=False)
        return None if needs is None else Way(True, needs)

    def _needs(self, tensor: Tensor, beyond_the_run: bool) -> frozenset[str] | None:
        """The holders of the variables that are read to compute a tensor, in addition to what the run computes or from
        the beginning; None if it cannot be computed, or not without changing something."""
        known = self._computed if beyond_the_run else {}
        found = self._reach([tensor.op], known)
        if any(self._graph.is_placeholder(each) or self._graph.changes_state(each) for each in found.values()):
            return None
        inputs = (tensor.op.name for operation in found.values() for tensor in operation.inputs)
        return frozenset(name for name in inputs if name in self._graph.holders)

    def _reach(self, starts: Iterable[Operation], known: dict[str, Operation] | None = None) -> dict[str, Operation]:
        """What is run for the sake of some operations, by name, but not what is `known`."""
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
        """The holders of the variables that the run may change."""
        written: set[str] = set()
        for operation in self._computed.values():
            held = [tensor.op for tensor in operation.inputs if tensor.op.name in self._graph.holders]
            if held and operation.type not in READS:
                # Variables of the old kind are also passed where only their value is wanted.
                written.update(
                    holder.name for holder in held if holder.type == "VarHandleOp" or takes_reference(operation)
                )
        return frozenset(written)
