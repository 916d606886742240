"""Rows of the index, read from its Parquet files as columns: a row becomes an object only when somebody asks for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import arrow
from .chunk_values import ChunkFile
from .errors import CorruptFile
from .index import SavedTensor
from .reductions import STATISTICS
from .schema import INDEX_SCHEMA
from .storage import Storage

_KEPT_BYTES = 64 << 20
_KEPT_GROUPS = 1024
_KEPT_FOOTERS = 256

_PLACE = [name for name in SavedTensor._fields if name in INDEX_SCHEMA.names and name != "histogram"]
_REST = [*STATISTICS, "histogram"]
_TEXTS = [field.name for field in INDEX_SCHEMA if field.type == pa.string()]

Positions = np.ndarray[Any, np.dtype[np.intp]]
Cells = Callable[[Positions], list[Any]]


class IndexRows:
    """The rows of the index files of one run. Row groups stay decoded until there are too many of them.

    Not to be used from two threads at once. Every method raises CorruptFile, naming a file that cannot be read.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: OrderedDict[str, _IndexFile] = OrderedDict()
        self._groups: OrderedDict[tuple[str, int], _RowGroup] = OrderedDict()
        self._bytes = 0

    def read(
        self,
        paths: Sequence[str],
        names: Collection[str] | None = None,
        step: int | None = None,
        statistics: bool = False,
    ) -> list[SavedTensor]:
        """The rows in these files of some tensors (None: of all), at a global step (None: at all), file by file."""
        rows: list[SavedTensor] = []
        self._storage.prefetch([path for path in paths if path not in self._files])
        for path in paths:
            try:
                file = self._file(path)
                for number in file.groups_with(names, step):
                    group = self._group(file, number)
                    rows += group.rows(group.positions(names, step), statistics)
                    self._count(group)
            except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as exc:
                raise CorruptFile(path, f"its rows cannot be read: {exc}") from exc
        return rows

    def _file(self, path: str) -> _IndexFile:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = _IndexFile(self._storage, path)
            if len(self._files) > _KEPT_FOOTERS:
                self._files.popitem(last=False)
        return file

    def _group(self, file: _IndexFile, number: int) -> _RowGroup:
        key = file.path, number
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _RowGroup(file, number)
        else:
            self._groups.move_to_end(key)
        return group

    def _count(self, group: _RowGroup) -> None:
        self._bytes += group.nbytes - group.counted
        group.counted = group.nbytes
        while self._bytes > _KEPT_BYTES or len(self._groups) > _KEPT_GROUPS:
            _, dropped = self._groups.popitem(last=False)
            self._bytes -= dropped.counted


class _IndexFile:
    """One index file: its footer, and what that says of each row group."""

    def __init__(self, storage: Storage, path: str) -> None:
        self.path = path
        # Its threads take longer than many small reads of a file that is near.
        together = not storage.is_local
        self._parquet = pq.ParquetFile(ChunkFile(storage, path), read_dictionary=_TEXTS, pre_buffer=together)
        footer = self._parquet.metadata
        columns = {footer.row_group(0).column(place).path_in_schema: place for place in range(4)}
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        self._names = [_ends(group.column(columns["name"])) for group in groups]
        self._steps = [_ends(group.column(columns["global_step"])) for group in groups]

    def groups_with(self, names: Collection[str] | None, step: int | None) -> list[int]:
        """The row groups that may hold any of the names at the step."""
        return [
            number
            for number, (of_names, of_steps) in enumerate(zip(self._names, self._steps, strict=True))
            if (step is None or of_steps is None or of_steps[0] <= step <= of_steps[1])
            and (names is None or of_names is None or any(of_names[0] <= name <= of_names[1] for name in names))
        ]

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        table = self._parquet.read_row_group(group, columns=list(columns), use_threads=False)
        for column in columns:
            expected, found = INDEX_SCHEMA.field(column), table[column]
            kind = found.type.value_type if pa.types.is_dictionary(found.type) else found.type
            if kind != expected.type and not pa.types.is_nested(kind):
                raise TypeError(f"{column} is {kind}, not {expected.type}")
            if found.null_count and not expected.nullable:
                raise ValueError(f"{column} is missing in some rows")
        return table


class _RowGroup:
    """The decoded columns of one row group; those that tell which rows are wanted first, the others once some are."""

    def __init__(self, file: _IndexFile, number: int) -> None:
        self._file, self._number = file, number
        table = file.read(number, ["name", "global_step"])
        names = _array(table["name"])
        self._codes: dict[str, int] = {name: code for code, name in enumerate(names.dictionary.to_pylist())}
        self._names = arrow.numpy_of(names.indices)
        self._steps = arrow.numpy_of(_array(table["global_step"]))
        # What a writer flushes is in the order of steps; what was compacted is not.
        self._in_order = bool((self._steps[1:] >= self._steps[:-1]).all())
        self.nbytes = table.nbytes
        self.counted = 0

    def positions(self, names: Collection[str] | None, step: int | None) -> Positions:
        first, end = 0, len(self._steps)
        if step is not None and self._in_order:
            first, end = np.searchsorted(self._steps, [step, step + 1]).tolist()
            step = None
        if names is None:
            found = np.arange(first, end)
        else:
            codes = [code for name in names if (code := self._codes.get(name)) is not None]
            here = self._names[first:end]
            found = np.flatnonzero(here == codes[0] if len(codes) == 1 else np.isin(here, codes)) + first
        return found if step is None else found[self._steps[found] == step]

    def rows(self, positions: Positions, statistics: bool) -> list[SavedTensor]:
        if not len(positions):
            return []
        columns = [cells(positions) for cells in self._place]
        if statistics:
            *values, histograms = [cells(positions) for cells in self._rest]
            columns += [list(map(list, zip(*values, strict=True))), histograms]
        return list(map(SavedTensor._make, _padded(columns)))

    @cached_property
    def _place(self) -> list[Cells]:
        return self._read(_PLACE)

    @cached_property
    def _rest(self) -> list[Cells]:
        return self._read(_REST)

    def _read(self, columns: Sequence[str]) -> list[Cells]:
        table = self._file.read(self._number, columns)
        self.nbytes += table.nbytes
        return [_cells(_array(table[name])) for name in columns]


def _padded(columns: list[list[Any]]) -> zip[tuple[Any, ...]]:
    nothing = [None] * len(columns[0])
    return zip(*columns, *[nothing] * (len(SavedTensor._fields) - len(columns)), strict=True)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _cells(column: pa.Array) -> Cells:
    """What gives the cells of a column at some positions."""
    if column.null_count == len(column):
        return lambda positions: [None] * len(positions)
    if pa.types.is_dictionary(column.type):
        words, codes = [*column.dictionary.to_pylist(), None], arrow.numpy_of(column.indices, missing=-1)
        return lambda positions: [words[code] for code in codes[positions].tolist()]
    if pa.types.is_primitive(column.type) and not column.null_count:
        values = arrow.numpy_of(column)
        return lambda positions: values[positions].tolist()
    if column.type == INDEX_SCHEMA.field("shape").type and not column.flatten().null_count:
        lengths, begins = (
            arrow.numpy_of(column.flatten()).tolist(),
            arrow.numpy_of(column.offsets) - column.offsets[0].as_py(),
        )
        return lambda positions: [
            lengths[begin:end]
            for begin, end in zip(begins[positions].tolist(), begins[positions + 1].tolist(), strict=True)
        ]
    return lambda positions: column.take(arrow.column(positions.tolist(), pa.int64())).to_pylist()


def _ends(column: Any) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column chunk, where its statistics say them."""
    statistics = column.statistics
    return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None
