"""Tiles of one saved column of index files, without SQL: its rows are decoded by Arrow and reduced by numpy.

A hash aggregate over name and column of steps takes three times as long as the scan below it. The rows of a file are
not in any order, but those of one tensor and steps that follow one another often lie together: the threads that decode
rows reduce such neighbours, and what is left is put into the grid.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorruptFile, FileError
from ..format.arrow_arrays import numpy_of, valid
from ..format.chunk_reader import ChunkFile
from ..format.schema import INDEX_SCHEMA
from ..storage.open import Storage
from .grid import Grid

_S = TypeVar("_S")
_T = TypeVar("_T")
_Array = np.ndarray[Any, Any]
_FOLDS = (np.minimum, np.maximum, np.add, np.add, np.add)
"""By which the arrays of a grid are made of those of a finer one."""

# Rows that are decoded at once, by each thread.
_BATCH_ROWS = 600_000
_THREADS = 4
# Files, and batches of rows, that wait for the one before them.
_AHEAD = 4
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
    def wanted(self) -> dict[str, str]:
        """The text that a row must have in a column in order to count."""
        wanted = {"mode": self.mode if self.mode != "GLOBAL" else "", "worker": self.worker}
        return {name: text for name, text in wanted.items() if text}

    @property
    def read(self) -> list[str]:
        """The columns that are read."""
        texts = dict.fromkeys([*self.wanted, *(["worker"] if self.changes else [])])
        return ["name", *texts, self.step, self.name]


class _Rows(NamedTuple):
    """Rows that count, each with a value."""

    names: list[str]
    codes: _Array
    """The position of each row's name in `names`."""
    steps: _Array
    values: _Array
    workers: _Array | None
    """The name of each row's worker, where it matters."""


class _Cells(NamedTuple):
    """What neighbouring rows of one tensor and one column of the grid were reduced to."""

    names: list[str]
    codes: _Array
    """The position of each cell's name in `names`."""
    bins: _Array
    """The column of the grid of each cell, counted from step 0."""
    folded: tuple[_Array, ...]
    """Least, largest and total of the finite values, and how many are finite and not, as in `Grid.arrays`."""


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
        if self.column.changes:
            for rows in _decoded(storage, paths, self.column, _read):
                self.add(rows)
        else:
            for cells in _decoded(storage, paths, self.column, _read_cells):
                self._put(cells)

    def add(self, rows: _Rows) -> None:
        """Add rows."""
        self._put(_cells(self._changes(rows) if self.column.changes else rows, self.column.width))

    def _put(self, cells: _Cells) -> None:
        if not len(cells.bins):
            return
        known = self._names
        positions = np.array([known.setdefault(name, len(known)) for name in cells.names], np.int64)
        self._grow(int(cells.bins.min()), int(cells.bins.max()) + 1)
        keys = positions[cells.codes] * self._grid.columns + (cells.bins - self._start)
        for fold, into, found in zip(_FOLDS, self._grid.arrays, cells.folded, strict=True):
            fold.at(into.reshape(-1), keys, found)

    def _grow(self, start: int, end: int) -> None:
        """Make the arrays hold all names and more columns; they grow by doubling."""
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


def _decoded(
    storage: Storage, paths: Sequence[str], column: Column, read: Callable[[_Batch, Column], _T]
) -> Iterator[_T]:
    """Yield what `read` makes of the rows of files, in their order. Threads call it."""
    storage.prefetch(list(paths))
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        opened = _ahead(pool, lambda path: _batches(storage, path, column), paths)
        batches = (batch for found in opened for batch in found)
        yield from _ahead(pool, lambda batch: read(batch, column), batches)


def _ahead(pool: ThreadPoolExecutor, work: Callable[[_S], _T], items: Iterable[_S]) -> Iterator[_T]:
    """Yield what `work` returns for each item, in their order. The pool works a few items ahead."""
    waiting: deque[Future[_T]] = deque()
    for item in items:
        try:
            waiting.append(pool.submit(work, item))
        except RuntimeError:  # no more threads can be started
            while waiting:
                yield waiting.popleft().result()
            yield work(item)
        if len(waiting) > _AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _Batch(NamedTuple):
    """Row groups that are read together, of a file that only they are read from."""

    path: str
    file: pq.ParquetFile
    groups: list[int]
    columns: list[str]
    """What must be read of them."""


def _batches(storage: Storage, path: str, column: Column) -> list[_Batch]:
    """Return the row groups of a file that may have rows that count."""
    try:
        texts = [name for name in _TEXTS if name in column.read]
        file = ChunkFile(storage, path).parquet(read_dictionary=texts)
        metadata, found = file.metadata, list[_Batch]()
        number = metadata.num_row_groups
        each = max(1, _BATCH_ROWS * number // max(metadata.num_rows, 1))
        for first in range(0, number, each):
            groups = list(range(first, min(first + each, number)))
            only = {name: _only_text(metadata, groups, name) for name in column.wanted}
            if any(only.get(name) not in (None, wanted) for name, wanted in column.wanted.items()):
                continue
            columns = [name for name in column.read if only.get(name) is None or (name == "worker" and column.changes)]
            own = ChunkFile(storage, path).parquet(metadata, texts) if found else file
            found.append(_Batch(path, own, groups, columns))
    except (pa.ArrowException, ValueError) as exc:
        raise CorruptFile(path, f"its rows cannot be read: {exc}") from exc
    return found


def _only_text(metadata: pq.FileMetaData, groups: Sequence[int], name: str) -> str | None:
    """Return the text that all rows of some row groups have in a column, None if the footer does not say so."""
    at = metadata.schema.names.index(name)
    found = set[object]()
    for group in groups:
        about = metadata.row_group(group).column(at).statistics
        if about is None or not about.has_min_max or about.null_count != 0:
            return None
        found |= {about.min, about.max}
    return str(found.pop()) if len(found) == 1 else None


def _read(batch: _Batch, column: Column) -> _Rows:
    try:
        table = batch.file.read_row_groups(batch.groups, columns=batch.columns, use_threads=False)
        return _rows(table.unify_dictionaries(), column)
    except (FileError, FileNotFoundError):
        raise
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as exc:
        raise CorruptFile(batch.path, f"its rows cannot be read: {exc}") from exc


def _read_cells(batch: _Batch, column: Column) -> _Cells:
    return _cells(_read(batch, column), column.width)


def _cells(rows: _Rows, width: int) -> _Cells:
    """Reduce neighbouring rows of one tensor and one column of the grid."""
    codes, values = rows.codes, rows.values
    bins = rows.steps >> (width.bit_length() - 1)
    begin = np.ones(len(bins), bool)
    np.not_equal(codes[1:], codes[:-1], out=begin[1:])
    begin[1:] |= bins[1:] != bins[:-1]
    at = np.flatnonzero(begin)
    finite = np.isfinite(values)
    counts = np.diff(at, append=len(values))
    if finite.all():
        each = values, values, values, counts, np.zeros(len(at), np.int64)
    else:
        zeros = np.where(finite, values, 0)
        whole = finite.astype(np.int64)
        each = np.where(finite, values, np.inf), np.where(finite, values, -np.inf), zeros, whole, 1 - whole
    if len(at) == len(values):
        return _Cells(rows.names, codes, bins, each)
    pairs = zip(_FOLDS, each, strict=True)
    folded = tuple(part if len(part) == len(at) else fold.reduceat(part, at) for fold, part in pairs)
    return _Cells(rows.names, codes[at], bins[at], folded)


def _rows(table: pa.Table, column: Column) -> _Rows:
    if table[column.name].type != INDEX_SCHEMA.field(column.name).type:
        raise TypeError(f"the column {column.name} is {table[column.name].type}")
    cells = table[column.name].combine_chunks()
    names, codes = _texts(table["name"])
    counts = valid(cells)
    for text, wanted in column.wanted.items():
        if text in table.column_names:
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
