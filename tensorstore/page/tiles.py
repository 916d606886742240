"""A statistic of all tensors at the resolution of a screen: least, largest and mean value of each tensor and column.

A column is a range of steps whose width is a power of two. The tiles of a whole mode are computed once for each index
file: when a run grows, only new files are read, and a coarser zoom level is made of a finer one. No step is left out,
so a single outlier is in the largest or the least value of its column at every zoom level.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..engines.base import MissingFile, RunFile
from ..engines.duckdb import DuckDBEngine
from ..read.views import FILES_OF_TENSORS, Views
from ..storage.open import Storage
from .grid import Grid

# A mode has at most this many columns at its finest kept zoom level; a step each, where there are fewer.
_MOST_COLUMNS = 2048
# Bytes of tiles in memory.
_KEPT_BYTES = 512 << 20
_ATTEMPTS = 3


@dataclass(frozen=True)
class Choice:
    """What tiles are of."""

    expression: str
    """SQL over the view `tensors`."""
    mode: str
    worker: str = ""
    """All workers if empty."""


class Tiles:
    """The tiles of one run. Safe to use from several threads, one at a time of which reads files.

    Args:
        storage: The run.
        list_files: Returns the index files that can be read.
        kept: Tiles of earlier processes, where there are any.
    """

    def __init__(self, storage: Storage, list_files: Callable[[], Sequence[RunFile]], kept: Any = None) -> None:
        self._storage, self._list_files, self._kept = storage, list_files, kept
        self._lock = threading.Lock()
        self._whole: dict[Choice, tuple[frozenset[str], Grid]] = {}
        self._zoomed: OrderedDict[tuple[Any, ...], Grid] = OrderedDict()

    def grid(self, choice: Choice, first: int, end: int, columns: int, last: int) -> Grid:
        """Return the tiles of the steps first <= step < end.

        Args:
            choice: What they are of.
            first: The first step.
            end: The step after the last one.
            columns: The most columns.
            last: The last step of the mode, which decides how fine the kept tiles are.

        Returns:
            The tiles; their first column may begin before `first`.
        """
        width = width_for(end - first, columns)
        with self._lock:
            if width >= (kept := width_for(last + 1, _MOST_COLUMNS)):
                return self._of_mode(choice, kept).coarser(width).cut(first, end)
            files = self._list_files()
            start = first - first % width
            key = (choice, start, end, width, frozenset(file.path for file in files))
            if key not in self._zoomed:
                self._zoomed[key] = self._computed(choice, width, files, (start, end))
                self._forget()
            self._zoomed.move_to_end(key)
            return self._zoomed[key]

    def _of_mode(self, choice: Choice, width: int) -> Grid:
        """Return the tiles of a whole mode, of which only new files are read."""
        for attempt in range(_ATTEMPTS):
            files = self._list_files()
            paths = frozenset(file.path for file in files)
            known, grid = self._whole.get(choice) or self._from_disk(choice, width, paths)
            if not known <= paths:  # compacted
                known, grid = frozenset(), Grid.empty(width)
            new = [file for file in files if file.path not in known]
            try:
                if new:
                    grid = grid.coarser(width).joined(self._computed(choice, width, new))
                    self._whole[choice] = paths, grid
                    self._to_disk(choice, paths, grid, len(new))
                return grid.coarser(width)
            except MissingFile:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _from_disk(self, choice: Choice, width: int, paths: frozenset[str]) -> tuple[frozenset[str], Grid]:
        found = self._kept.load(choice, paths) if self._kept else None
        if found is None or found[1].width > width:
            return frozenset(), Grid.empty(width)
        return found  # type: ignore[no-any-return]

    def _to_disk(self, choice: Choice, paths: frozenset[str], grid: Grid, num_new: int) -> None:
        if self._kept:
            self._kept.save(choice, paths, grid, num_new)

    def _forget(self) -> None:
        while len(self._zoomed) > 1 and sum(grid.nbytes for grid in self._zoomed.values()) > _KEPT_BYTES:
            self._zoomed.popitem(last=False)

    def _computed(
        self, choice: Choice, width: int, files: Sequence[RunFile], steps: tuple[int, int] | None = None
    ) -> Grid:
        if not files:
            return Grid.empty(width)
        database = DuckDBEngine().connect([self._storage])
        try:
            views = Views(database)
            views.add_files(FILES_OF_TENSORS, lambda: 0, lambda: files)
            first, end = steps or (0, 2**62)
            values = {"mode": choice.mode, "worker": choice.worker, "width": width, "first": first, "end": end}
            return Grid.from_rows(views.sql(_query(choice), values).to_arrow_table(), width)
        finally:
            database.close()


def width_for(steps: int, columns: int) -> int:
    """Return the least power of two that divides a number of steps into at most so many columns."""
    return 1 << max(0, -(-max(steps, 1) // max(columns, 1)) - 1).bit_length()


def _query(choice: Choice) -> str:
    step = "global_step" if choice.mode == "GLOBAL" else "mode_step"
    finite = "filter (where isfinite(value))"
    return f"""
        select
            name, step // $width as bin, min(value) {finite} as least, max(value) {finite} as most,
            sum(value) {finite} as total, count(*) {finite} as finite, count(*) as valued
        from (
            select name, {step} as step, {choice.expression} as value
            from tensors
            where ($mode = 'GLOBAL' or mode = $mode) and ($worker = '' or worker = $worker)
                and {step} >= $first and {step} < $end
        )
        where value is not null
        group by name, bin
    """
