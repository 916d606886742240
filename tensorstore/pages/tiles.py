"""Tiles: a statistic of all tensors at screen resolution, as least, largest and mean value of each tensor and column.

A column is a range of steps whose width is a power of two. The tiles of a whole mode are computed once for each index
file: when a run grows, only new files are read, and coarser zoom levels are computed from finer ones. No step is left
out, so a single outlier is the largest or the least value of its column at every zoom level.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..errors import TensorTrialError
from ..format import arrow_arrays
from ..format.verified_files import verified_files
from ..mode import ModeKeys
from ..read.run_queries import QuerySources
from ..read.run_reader import RunReader
from ..snapshot.snapshot import repeated
from .grid import Grid
from .index_query import query_files
from .kept_tiles import KeptTiles

# The most columns of a mode at its finest cached zoom level. If there are fewer steps, each has a column.
_MOST_COLUMNS, _FEWEST_COLUMNS = 2048, 256
# The most cells of a statistic in memory, of 40 bytes each, unless there are very many tensors.
_MOST_CELLS = 1 << 20
# The most bytes of tiles in memory.
_KEPT_BYTES = 512 << 20
# Tiles that took longer are cached on disk.
_KEPT_SECONDS = 0.25


@dataclass(frozen=True)
class Choice:
    """The choice of rows that tiles are made of."""

    expression: str
    """SQL over the rows of `source`."""
    mode: str
    worker: str = ""
    """The worker; "" for all."""
    changes: bool = False
    """True if the value is 1 where a digest differs from the previous one of the same tensor and worker, else 0."""
    source: str = "tiled"
    """The view `tiled`, or a subquery over it with the same columns and more."""


CELLS = pa.schema(
    [
        ("name", pa.string()),
        ("bin", pa.int64()),
        *((name, pa.float64()) for name in ("least", "most", "total")),
        *((name, pa.int64()) for name in ("finite", "valued")),
    ]
)
"""The columns of the cells of a grid."""


@dataclass
class _Whole:
    """The tiles of a whole mode."""

    grid: Grid
    files: frozenset[str] = frozenset()
    last: dict[tuple[str, str], int] = field(default_factory=dict)
    """The newest digest of each tensor and worker, if changes are counted."""
    left_out: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The superseded rows, by file."""


class Tiles:
    """The tiles of one run. Safe to use from several threads; one at a time reads files.

    Args:
        reader: The run.
        index: Its index files.
        names: Returns the names of its tensors.
        kept: The cache of tiles on disk, if there is one.
    """

    def __init__(
        self, reader: RunReader, index: QuerySources, names: Callable[[], list[str]], kept: KeptTiles | None = None
    ) -> None:
        self._reader, self._index, self._names, self._kept = reader, index, names, kept
        self._lock = threading.Lock()
        self._whole: OrderedDict[Choice, _Whole] = OrderedDict()
        self._zoomed: OrderedDict[Hashable, Grid] = OrderedDict()

    def grid(self, choice: Choice, first: int, end: int, columns: int, last: int) -> Grid:
        """Return the tiles of the steps first <= step < end in at most `columns` columns.

        The first column may begin before `first`. `last` is the last step of the mode, which determines the resolution
        of cached tiles.
        """
        names = self._names()
        width = width_for(end - first, columns)
        finest = min(_MOST_COLUMNS, max(_FEWEST_COLUMNS, _MOST_CELLS // max(len(names), 1)))
        with self._lock:
            if width >= (kept := width_for(last + 1, finest)):
                return self._of_mode(choice, kept).coarser(width).cut(first, end)
            return self._of_steps(choice, width, first - first % width, end)

    def _of_mode(self, choice: Choice, width: int) -> Grid:
        """Return the tiles of a whole mode. Only new files are read."""
        whole = self._whole[choice] = repeated(lambda: self._read_whole(choice, width), self._index.recover)
        self._whole.move_to_end(choice)
        self._forget()
        return whole.grid.coarser(width)

    def _read_whole(self, choice: Choice, width: int) -> _Whole:
        paths, left_out = self._index.steps.files(), self._index.rows_left_out()
        whole = self._whole.get(choice) or self._from_disk(choice, width, paths)
        were_left_out = {path: rows for path, rows in left_out.items() if path in whole.files}
        if not whole.files <= set(paths) or were_left_out != whole.left_out:  # compacted or superseded
            whole = _Whole(Grid.empty(width))
        if new := self._index.readable_index([path for path in paths if path not in whole.files]):
            begun = time.perf_counter()
            whole = self._grown(whole, choice, width, new, left_out)
            if time.perf_counter() - begun > _KEPT_SECONDS:
                self._to_disk(choice, whole)
        return whole

    def _grown(
        self, whole: _Whole, choice: Choice, width: int, new: Sequence[str], left_out: Mapping[str, Sequence[int]]
    ) -> _Whole:
        """Return tiles with the rows of new files, except superseded ones."""
        found, last = self._queried(choice, width, new, (0, 2**62), left_out), whole.last
        if choice.changes:
            values = {"mode": choice.mode, "worker": choice.worker, "width": width}
            ends = query_files(self._reader, new, _ends_query(choice), values, left_out).to_pylist()
            found = found.joined(_changes_between(last, ends, width))
            last = last | {(row["name"], row["worker"]): row["newest"] for row in ends}
        files = whole.files.union(new)
        grid = whole.grid.coarser(width).joined(found)
        return _Whole(grid, files, last, {path: rows for path, rows in left_out.items() if path in files})

    def _of_steps(self, choice: Choice, width: int, start: int, end: int) -> Grid:
        """Return the tiles of some steps, finer than those of the whole mode."""
        # A change is relative to the previous step, which is searched for in as many earlier steps.
        since = max(0, 2 * start - end) if choice.changes else start

        def read() -> tuple[Any, ...]:
            paths = self._index.steps.files_between(ModeKeys[choice.mode], (since, end))
            key = (choice, start, end, width, frozenset(paths))
            if key not in self._zoomed:
                readable = self._index.readable_index(paths)
                self._zoomed[key] = self._queried(choice, width, readable, (start, end), self._index.rows_left_out())
            return key

        key = repeated(read, self._index.recover)
        self._zoomed.move_to_end(key)
        self._forget()
        return self._zoomed[key]

    def _from_disk(self, choice: Choice, width: int, paths: Sequence[str]) -> _Whole:
        if self._kept and not choice.changes:
            found = self._kept.load(repr(choice), self._checksums(paths))
            if found is not None and found[1].width <= width:
                return _Whole(found[1], found[0])
        return _Whole(Grid.empty(width))

    def _to_disk(self, choice: Choice, whole: _Whole) -> None:
        can_be_kept = self._kept and not choice.changes and not whole.left_out
        files = self._checksums(sorted(whole.files)) if can_be_kept else {}
        if self._kept and len(files) == len(whole.files):
            self._kept.save(repr(choice), files, whole.grid)

    def _checksums(self, paths: Sequence[str]) -> dict[str, int]:
        """Return the checksums of the readable files."""
        verified, found = verified_files(self._reader.storage), dict[str, int]()
        for path in paths:
            try:
                found[path] = verified.checksum(path)
            except (FileNotFoundError, TensorTrialError):
                continue
        return found

    def _forget(self) -> None:
        while len(self._zoomed) > 1 and sum(grid.nbytes for grid in self._zoomed.values()) > _KEPT_BYTES:
            self._zoomed.popitem(last=False)
        while len(self._whole) > 1 and sum(whole.grid.nbytes for whole in self._whole.values()) > _KEPT_BYTES:
            self._whole.popitem(last=False)

    def _queried(
        self,
        choice: Choice,
        width: int,
        paths: Sequence[str],
        steps: tuple[int, int],
        left_out: Mapping[str, Sequence[int]],
    ) -> Grid:
        """Return the tiles of some steps by a query."""
        if not paths:
            return Grid.empty(width)
        values: dict[str, Any] = {"mode": choice.mode, "worker": choice.worker, "shift": width.bit_length() - 1}
        values |= {"first": steps[0], "end": steps[1]}
        return Grid.from_rows(query_files(self._reader, paths, _query(choice), values, left_out), width)


def width_for(steps: int, columns: int) -> int:
    """Return the least power of two that divides `steps` steps into at most `columns` columns."""
    return 1 << max(0, -(-max(steps, 1) // max(columns, 1)) - 1).bit_length()


def _query(choice: Choice) -> str:
    step = "global_step" if choice.mode == "GLOBAL" else "mode_step"
    # A shift and one column of finite values take two thirds of the time of a division and of filtered aggregates.
    return f"""
        select
            name, bin, min(finite_value) as least, max(finite_value) as most, sum(finite_value) as total,
            count(finite_value) as finite, count(*) as valued
        from (
            select name, step >> $shift as bin, case when isfinite(value) then value end as finite_value
            from (
                select name, {step} as step, ({choice.expression})::double as value
                from {choice.source}
                where ($mode = 'GLOBAL' or mode = $mode) and ($worker = '' or worker = $worker)
                    and {step} >= $first and {step} < $end
            )
            where value is not null
        )
        group by name, bin
    """


def _ends_query(choice: Choice) -> str:
    """Return the query of the first and the newest digest of each tensor and worker in some files."""
    step = "global_step" if choice.mode == "GLOBAL" else "mode_step"
    return f"""
        select
            name, worker, arg_min(digest, global_step) as first, min({step}) // $width as bin,
            arg_max(digest, global_step) as newest
        from tiled
        where digest is not null and ($mode = 'GLOBAL' or mode = $mode) and ($worker = '' or worker = $worker)
        group by name, worker
    """


def _changes_between(last: Mapping[tuple[str, str], int], ends: Sequence[Mapping[str, Any]], width: int) -> Grid:
    """Return the changes from the newest digests of earlier files to the first ones of new files."""
    cells: dict[tuple[str, int], list[float]] = {}
    for row in ends:
        if (before := last.get((row["name"], row["worker"]))) is not None:
            cells.setdefault((row["name"], row["bin"]), []).append(float(before != row["first"]))
    rows = [(*key, min(values), max(values), sum(values), len(values), len(values)) for key, values in cells.items()]
    return Grid.from_rows(arrow_arrays.table(CELLS, rows), width)
