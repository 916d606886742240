"""Numbers for what happens several times in a step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator


class Numbering:
    """Counts, within a step, how often a module took or gave a value."""

    def __init__(self) -> None:
        self._step: object = None
        self._counts: dict[tuple[str, str], Iterator[int]] = {}

    def next(self, step: object, path: str, kind: str) -> int:
        """0 for the first of the step. A model may run in several threads at once."""
        if step is not self._step:
            self._step, self._counts = step, {}
        # Both calls are atomic.
        return next(self._counts.setdefault((path, kind), itertools.count()))
