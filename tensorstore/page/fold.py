"""Tiles of one saved column of index files, without SQL: its rows are decoded by Arrow and reduced by numpy.

A hash aggregate over name and column of steps takes three times as long as the scan below it. The rows of a file are
not in any order: those of one tensor and steps that follow one another often lie together, and then are reduced as
runs, and all others one by one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorruptFile, FileError
from ..format.arrow_arrays import numpy_of, valid
from ..format.chunk_reader import ChunkFile
from ..format.schema import INDEX_SCHEMA, LATER_COLUMNS
from ..storage.open import Storage
from .grid import Grid

_Array = np.ndarray[Any, Any]

# Rows that are decoded at once, by each thread.
_BATCH_ROWS = 400_000
_THREADS = 4
_TEXTS = ["name", "mode", "worker"]


@dataclass(frozen=True)
class Column:
    """What is read of index files."""

    name: str
    """A column of numbers of the index."""
    mode: str
    """GLOBAL for all."""
    worker: str
    """Empty for all."""
    width: int
    """Steps in a column of the grid, a power of two."""
    changes: bool = False
    """Whether the statistic is not the cell, but 1 where it differs from the same tensor's cell before, else 0."""

    @property
    def step(self) -> str:
        """The column that counts the steps."""
        return "global_step" if self.mode == "GLOBAL" else "mode_step"

    @property
    def read(self) -> list[str]:
        """The columns that are read."""
        of_mode = ["mode"] if self.mode != "GLOBAL" else []
        of_worker = ["worker"] if self.worker or self.changes else []
        return ["name", *of_mode, *of_worker, self.step, self.name]


class _Rows(NamedTuple):
    """Rows that count, each with a value."""

    names: list[str]
    codes: _Array
    """The position of each row's name in `names`."""
    steps: _Array
    values: _Array
    workers: _Array | None
    """The name of each row's worker, where it matters."""


class Fold:
    """Reduces rows to a grid that grows with them.

    Args:
        column: What is read.
        names: Names that are expected; there may be others.
        last_step: The last step that is expected; there may be later ones.
        last: The last cell of each tensor and worker in the files before, for a column of changes.
    """

    def __init__(
        self,
        column: Column,
        names: Sequence[str] = (),
        last_step: int = 0,
        last: Mapping[tuple[str, str], int] | None = None,
    ) -> None:
        self.column = column
        self.last = dict(last or {})
        self._names = {name: row for row, name in enumerate(names)}
        self._start = self._end = 0
        self._grid = Grid.empty(column.width, list(names), 0, last_step // column.width + 1)

    def grid(self) -> Grid:
        """Return what was added, as a grid."""
        used = slice(self._end - self._start)
        counts = self._grid.finite[: len(self._names), used] + self._grid.nonfinite[: len(self._names), used]
        rows, columns = (np.flatnonzero(counts.sum(axis=axis)) for axis in (1, 0))
        if not len(columns):
            return Grid.empty(self.column.width)
        first, end = int(columns[0]), int(columns[-1]) + 1
        known = list(self._names)
        names = [known[row] for row in rows.tolist()]
        arrays = [each[rows, first:end] for each in self._grid.arrays]
        return Grid(names, self.column.width, self._start + first, *arrays)

    def add_files(self, storage: Storage, paths: Sequence[str]) -> None:
        """Add the rows of index files.

        Args:
            storage: The run.
            paths: The files, those of each worker in the order of their steps.

        Raises:
            CorruptFile: A file cannot be read.
            FileNotFoundError: A file is missing.
        """
        for rows in _decoded(storage, paths, self.column):
            self.add(rows)

    def add(self, rows: _Rows) -> None:
        """Add rows."""
        if self.column.changes:
            rows = self._changes(rows)
        if not len(rows.values):
            return
        bins = rows.steps >> (self.column.width.bit_length() - 1)
        self._grow(rows.names, int(bins.min()), int(bins.max()) + 1)
        positions = np.array([self._names[name] for name in rows.names], np.int64)
        keys = positions[rows.codes] * self._grid.columns + (bins - self._start)
        finite = np.isfinite(rows.values)
        if finite.all():
            self._reduce(keys, rows.values)
            return
        bad = np.bincount(keys[~finite], minlength=self._grid.nonfinite.size)
        self._grid.nonfinite.reshape(-1)[:] += bad
        self._reduce(keys[finite], rows.values[finite])

    def _reduce(self, keys: _Array, values: _Array) -> None:
        if not len(keys):
            return
        begins = np.concatenate([[0], np.flatnonzero(np.diff(keys)) + 1])
        counts = np.diff(np.append(begins, len(keys)))
        least = most = total = values
        if len(begins) < len(keys) // 2:
            keys = keys[begins]
            least, most, total = (each.reduceat(values, begins) for each in (np.minimum, np.maximum, np.add))
        else:
            counts = np.ones(len(keys), np.int64)
        into = [each.reshape(-1) for each in self._grid.arrays]
        np.minimum.at(into[0], keys, least)
        np.maximum.at(into[1], keys, most)
        np.add.at(into[2], keys, total)
        np.add.at(into[3], keys, counts)

    def _grow(self, names: list[str], start: int, end: int) -> None:
        """Make the arrays hold more names and columns; they grow by doubling."""
        for name in names:
            self._names.setdefault(name, len(self._names))
        rows, columns = self._grid.least.shape
        if self._end == self._start:
            # Columns from the first step on, or from that of the first rows if it comes much later.
            self._start = self._end = 0 if end <= columns else start
        first, last = min(start, self._start), max(end, self._end)
        if len(self._names) > rows or first < self._start or last - first > columns:
            more = Grid.empty(
                self.column.width,
                [""] * max(len(self._names), rows if len(self._names) <= rows else 2 * rows),
                first,
                max(last - first, columns if last - first <= columns else 2 * columns),
            )
            at = self._start - first
            for into, old in zip(more.arrays, self._grid.arrays, strict=True):
                used = self._end - self._start
                into[:rows, at : at + used] = old[:, :used]
            self._grid = more
        self._start, self._end = first, last

    def _changes(self, rows: _Rows) -> _Rows:
        """Return rows whose values are 1 where the cell differs from the one before, else 0; the first has none."""
        assert rows.workers is not None
        workers, of_worker = np.unique(rows.workers, return_inverse=True)
        keys = rows.codes.astype(np.int64) * len(workers) + of_worker
        order = np.argsort(keys, kind="stable")
        keys, cells = keys[order], rows.values[order]
        begins = np.concatenate([[0], np.flatnonzero(np.diff(keys)) + 1]) if len(keys) else keys
        changed = np.zeros(len(keys))
        changed[1:] = cells[1:] != cells[:-1]
        counts = np.ones(len(keys), bool)
        ends = np.append(begins[1:], len(keys)) - 1 if len(keys) else keys
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            name, worker = rows.names[keys[begin] // len(workers)], str(workers[keys[begin] % len(workers)])
            before = self.last.get((name, worker))
            counts[begin] = before is not None
            changed[begin] = before is not None and before != int(cells[begin])
            self.last[name, worker] = int(cells[end])
        kept = order[counts]
        return _Rows(rows.names, rows.codes[kept], rows.steps[kept], changed[counts], None)


def _decoded(storage: Storage, paths: Sequence[str], column: Column) -> Iterator[_Rows]:
    """Yield the rows of files, in their order, decoded by threads of which each is a few batches ahead at most."""
    storage.prefetch(list(paths))
    threads = min(_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Rows]] = deque()
        for path in paths:
            for groups, file in _batches(storage, path, column):
                waiting.append(pool.submit(_read, path, file, groups, column))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _batches(storage: Storage, path: str, column: Column) -> Iterator[tuple[list[int], pq.ParquetFile]]:
    """Yield row groups that are read together, with a file that only they are read from."""
    try:
        metadata = pq.read_metadata(ChunkFile(storage, path))
        number = metadata.num_row_groups
        each = max(1, _BATCH_ROWS * number // max(metadata.num_rows, 1))
        texts = [name for name in _TEXTS if name in column.read]
        for first in range(0, number, each):
            groups = list(range(first, min(first + each, number)))
            yield groups, ChunkFile(storage, path).parquet(metadata, texts)
    except (pa.ArrowException, ValueError) as exc:
        raise CorruptFile(path, f"its rows cannot be read: {exc}") from exc


def _read(path: str, file: pq.ParquetFile, groups: list[int], column: Column) -> _Rows:
    try:
        found = [name for name in column.read if name not in LATER_COLUMNS or name in file.schema_arrow.names]
        if column.name not in found:
            return _Rows([], *[np.zeros(0, np.int64)] * 4)
        table = file.read_row_groups(groups, columns=found, use_threads=False)
        return _rows(table.unify_dictionaries(), column)
    except (FileError, FileNotFoundError):
        raise
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as exc:
        raise CorruptFile(path, f"its rows cannot be read: {exc}") from exc


def _rows(table: pa.Table, column: Column) -> _Rows:
    if table[column.name].type != INDEX_SCHEMA.field(column.name).type:
        raise TypeError(f"the column {column.name} is {table[column.name].type}")
    cells = table[column.name].combine_chunks()
    names, codes = _texts(table["name"])
    counts = valid(cells)
    for text, wanted in (("mode", column.mode), ("worker", column.worker)):
        if text in column.read and wanted not in ("", "GLOBAL"):
            known, of_row = _texts(table[text])
            same = np.array([each == wanted for each in known], bool)
            if not same.all():
                counts = same[of_row] if counts is None else counts & same[of_row]
    workers = None
    if column.changes:
        known, of_row = _texts(table["worker"])
        workers = np.array(known, object)[of_row].astype(str)
    columns = [codes, numpy_of(table[column.step].combine_chunks()), numpy_of(cells), workers]
    if counts is not None:
        columns = [None if each is None else each[counts] for each in columns]
    return _Rows(names, *columns)  # type: ignore[arg-type]


def _texts(column: pa.ChunkedArray) -> tuple[list[str], _Array]:
    """Return the distinct texts of a column, and the position of each row's text among them."""
    if column.null_count:
        raise ValueError("a name, mode or worker is null")
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # of no rows
        return [], np.zeros(0, np.int64)
    return whole.dictionary.to_pylist(), numpy_of(whole.indices)
