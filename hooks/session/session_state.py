"""The state of one session, and the reading of values from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tensortrial.dtypes import Array
from tensortrial.mode import ModeKeys

from .fetches import RunView, Signature, signature
from .graph import GraphView

Run: TypeAlias = Callable[..., Any]
"""`session.run` without the hook."""


class SessionState:
    """The graph of a session, its known runs, and its initialized variables.

    Args:
        mode: The mode in which its runs are counted; None for the mode that the user has set.
    """

    def __init__(self, graph: Any, mode: ModeKeys | None) -> None:
        self.mode = mode
        self.graph = GraphView(graph)
        self._initialized: set[str] = set()
        self._runs: dict[Signature, RunView] = {}

    def refresh(self) -> bool:
        """Scan the graph again if it has grown. Return whether it has."""
        if not self.graph.is_stale:
            return False
        self.graph = GraphView(self.graph.graph)
        self._runs.clear()
        return True

    def run_of(self, fetches: Any, feeds: Any) -> RunView:
        """Return the view of a run with these arguments of `session.run`."""
        key = signature(self.graph.graph, fetches, feeds)
        if key not in self._runs:
            self._runs[key] = RunView(self.graph, key)
        return self._runs[key]

    def initialized(self, holders: Iterable[str], run: Run) -> set[str]:
        """Return the names of the operations whose variables are initialized.

        An initialized variable stays initialized, and is not checked again.
        """
        unknown = set(holders) - self._initialized
        if unknown:
            flags = {name: flag for name, flag in self.graph.flags.items() if name in unknown}
            self._initialized |= {name for name, is_set in run(flags).items() if is_set}
            self._initialized |= {name for name in unknown - flags.keys() if self._has_value(name, run)}
        return self._initialized

    def read(self, elements: Mapping[str, Any], run: Run, feeds: Any) -> dict[str, Array]:
        """Return the current values of some elements by a separate run."""
        if not elements:
            return {}
        # Copies, because a reference variable may share its memory with what the session returns.
        return {name: np.array(value) for name, value in run(dict(elements), feeds).items()}

    def _has_value(self, name: str, run: Run) -> bool:
        """Return whether a reference variable without a flag can be read."""
        (held,) = self.graph.holders[name].outputs
        if held.dtype == tf.resource:
            return False
        try:
            run(held)
        except tf.errors.FailedPreconditionError:
            return False
        return True
