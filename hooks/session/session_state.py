"""What is known of one session, and how values are read from it."""

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
"""`session.run`, with nobody watching."""


class Watched:
    """A session with the graph that it runs. `mode` is what its runs are counted in; None: what the user has set."""

    def __init__(self, graph: Any, mode: ModeKeys | None) -> None:
        self.mode = mode
        self.graph = GraphView(graph)
        self._initialized: set[str] = set()
        self._runs: dict[Signature, RunView] = {}

    def look_again(self) -> bool:
        """Look at the graph if it has grown. Gives whether it had."""
        if not self.graph.is_stale:
            return False
        self.graph = GraphView(self.graph.graph)
        self._runs.clear()
        return True

    def run_of(self, fetches: Any, feeds: Any) -> RunView:
        """What a run with these arguments of `session.run` computes."""
        key = signature(self.graph.graph, fetches, feeds)
        if key not in self._runs:
            self._runs[key] = RunView(self.graph, key)
        return self._runs[key]

    def initialized(self, holders: Iterable[str], run: Run) -> set[str]:
        """Those of the variables' holders that have a value now. They keep one, so each is asked until it has."""
        unknown = set(holders) - self._initialized
        if unknown:
            flags = {name: flag for name, flag in self.graph.flags.items() if name in unknown}
            self._initialized |= {name for name, is_set in run(flags).items() if is_set}
            self._initialized |= {name for name in unknown - flags.keys() if self._has_value(name, run)}
        return self._initialized

    def read(self, elements: Mapping[str, Any], run: Run, feeds: Any) -> dict[str, Array]:
        """The values of some elements now, in a run of their own."""
        if not elements:
            return {}
        # Copies: a variable of the old kind may share its memory with what the session gives.
        return {name: np.array(value) for name, value in run(dict(elements), feeds).items()}

    def _has_value(self, name: str, run: Run) -> bool:
        """Whether a variable of the old kind that has no flag can be read."""
        (held,) = self.graph.holders[name].outputs
        if held.dtype == tf.resource:
            return False
        try:
            run(held)
        except tf.errors.FailedPreconditionError:
            return False
        return True
