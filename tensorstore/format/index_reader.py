"""Reads rows of the index. Files are read as columns, and a row becomes an object only when it is requested."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..dtypes import Array
from ..errors import CorruptFile, MissingIndexFile
from ..forking import lazy
from ..statistics.definitions import STATISTICS
from ..storage.open import ByteRange, Storage
from . import arrow_arrays
from .checksum import check_file
from .chunk_reader import ChunkFile
from .index_types import SavedTensor
from .schema import FOOTER_EMPTY, FOOTER_GROUPS, INDEX_SCHEMA, SKETCH

_KEPT_BYTES = 64 << 20
_KEPT_GROUPS = 1024
_KEPT_FOOTERS = 1024
_READ_WHOLE = 1 << 20
_BATCH_ROWS = 1 << 17

_LISTS = ("histogram", "sketch")
LOCATION_COLUMNS = [name for name in SavedTensor._fields if name in INDEX_SCHEMA.names and name not in _LISTS]
_KEYS = ["name", "global_step"]
_REST = [*STATISTICS, *_LISTS]
ROW_COLUMNS = [*LOCATION_COLUMNS, *_REST]
"""The columns of a row with its statistics."""
_TYPES = {field.name: field.type for field in INDEX_SCHEMA}
_NULLABLE = frozenset(field.name for field in INDEX_SCHEMA if field.nullable)
_TEXTS = [field.name for field in INDEX_SCHEMA if field.type == pa.string()]

Positions = np.ndarray[Any, np.dtype[np.intp]]
Cells = Callable[[Positions], list[Any]]
_T = TypeVar("_T")


def read_rows(path: str, data: bytes | bytearray) -> pa.Table:
    """Return all rows of the index file whose bytes are `data`.

    Raises:
        CorruptFile: The file is damaged, or has an unknown column, which would be lost.
    """
    return pa.concat_tables([arrow_arrays.table(INDEX_SCHEMA, []), *read_batches(path, data, exact=True)])


def read_batches(
    path: str, data: bytes | bytearray, schema: pa.Schema = INDEX_SCHEMA, exact: bool = False
) -> Iterator[pa.Table]:
    """Yield the rows of the index file whose bytes are `data`, some at a time.

    Args:
        path: The path of the file, for messages.
        data: The bytes of the file.
        schema: Columns of `INDEX_SCHEMA`; texts may be dictionaries.
        exact: Read every column. Refuse a file that has other columns than an index file, or values in a column that
            its footer describes as empty.

    Raises:
        CorruptFile: The file is damaged, or its rows cannot be read.
    """
    texts = [each.name for each in schema if pa.types.is_dictionary(each.type)]
    check_file(path, data)
    try:
        file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts)
        if exact and set(file.schema_arrow.names) != set(INDEX_SCHEMA.names):
            raise ValueError("its columns are not those of an index file")
        empty = _empty_columns(file.metadata)
        columns = [name for name in schema.names if exact or name not in empty] or ["name"]
        for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
            if exact and any(batch[name].null_count < len(batch) for name in empty):
                raise ValueError("a column that its footer describes as empty has values")
            rows = [
                pa.nulls(len(batch), each.type) if each.name in empty else _typed(batch[each.name], each.type)
                for each in schema
            ]
            yield pa.Table.from_arrays(rows, schema=schema)
    except (pa.ArrowException, OSError, TypeError, ValueError, KeyError, RecursionError) as exc:
        raise CorruptFile(path, f"its rows cannot be read: {exc}") from exc


class IndexRows:
    """The rows of the index files of one run. Row groups stay decoded until there are too many of them.

    Must not be used from two threads at once. Every method raises CorruptFile or MissingIndexFile, naming the file.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: OrderedDict[str, _IndexFile] = OrderedDict()
        self._groups: OrderedDict[tuple[str, int], DecodedGroup] = OrderedDict()
        self._bytes = 0

    def read(
        self,
        paths: Sequence[str],
        names: Collection[str] | None = None,
        step: int | None = None,
        statistics: bool = False,
    ) -> list[SavedTensor]:
        """Return the rows of some tensors at a global step, file by file. None means all tensors, or all steps."""
        span = None if step is None else (step, step)
        found = self.read_each(paths, names, span, lambda group, positions: group.rows(positions, statistics))
        return [row for rows in found for row in rows]

    def read_each(
        self,
        paths: Sequence[str],
        names: Collection[str] | None,
        span: tuple[int, int] | None,
        read: Callable[[DecodedGroup, Positions], _T],
        columns: Sequence[str] = (),
    ) -> list[_T]:
        """Return what `read` returns for each row group.

        Args:
            paths: The index files.
            names: The names of the tensors; None for all.
            span: The first and the last global step; None for all.
            read: A function of the row group and the positions of its rows of these tensors at these steps.
            columns: The columns to decode with those that select rows. `read` may use others.
        """
        found: list[_T] = []
        self._storage.prefetch([path for path in paths if path not in self._files])
        for path in paths:
            try:
                file = self._file(path)
                for number in file.groups_with(names, span):
                    group = self._group(file, number, columns)
                    found.append(read(group, group.positions(names, span)))
                    self._count(group)
                file.release()
            except CorruptFile:
                raise
            except FileNotFoundError as exc:
                raise MissingIndexFile(path) from exc
            except (pa.ArrowException, OSError, LookupError, TypeError, ValueError, RecursionError) as exc:
                raise CorruptFile(path, f"its rows cannot be read: {exc}") from exc
        return found

    def _file(self, path: str) -> _IndexFile:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = _IndexFile(self._storage, path)
            if len(self._files) > _KEPT_FOOTERS:
                self._files.popitem(last=False)
        return file

    def _group(self, file: _IndexFile, number: int, columns: Sequence[str]) -> DecodedGroup:
        key = file.path, number
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = DecodedGroup(file, number, columns)
        else:
            self._groups.move_to_end(key)
        return group

    def _count(self, group: DecodedGroup) -> None:
        self._bytes += group.nbytes - group.counted
        group.counted = group.nbytes
        while self._bytes > _KEPT_BYTES or len(self._groups) > _KEPT_GROUPS:
            _, dropped = self._groups.popitem(last=False)
            self._bytes -= dropped.counted


class _IndexFile:
    """One index file: its footer, and the footer's description of each row group."""

    def __init__(self, storage: Storage, path: str) -> None:
        self.path = path
        self._storage = storage
        self._metadata: pq.FileMetaData = None
        self._size = storage.size(path)
        self._metadata = self._parquet.metadata
        self._groups = described_groups(self._metadata)
        self.empty = _empty_columns(self._metadata)

    @lazy
    def _data(self) -> bytes | bytearray:
        (data,) = self._storage.read_ranges([ByteRange(self.path, 0, self._size)])
        check_file(self.path, data)
        return data

    @lazy
    def _parquet(self) -> pq.ParquetFile:
        # A small file is read at once. From a larger one, Arrow reads each column.
        if self._size <= _READ_WHOLE:
            return pq.ParquetFile(pa.BufferReader(self._data), metadata=self._metadata, read_dictionary=_TEXTS)
        return self._file.parquet(self._metadata, _TEXTS)

    @lazy
    def _file(self) -> ChunkFile:
        return ChunkFile(self._storage, self.path)

    def release(self) -> None:
        """Release the bytes of the file. They are read again if another column is needed."""
        self.__dict__.pop("_parquet", None)
        self.__dict__.pop("_data", None)

    def groups_with(self, names: Collection[str] | None, span: tuple[int, int] | None) -> list[int]:
        """Return the row groups that may hold any of the names at the steps of a span."""
        return [
            number
            for number, (_, of_names, of_steps) in enumerate(self._groups)
            if (span is None or (of_steps[0] <= span[1] and span[0] <= of_steps[1]))
            and (names is None or any(of_names[0] <= name <= of_names[1] for name in names))
        ]

    def read(self, group: int, columns: Sequence[str]) -> list[pa.Array]:
        if self._size > _READ_WHOLE and not self._storage.is_local:
            self._file.fetch(self._metadata, group, columns)
        table = self._parquet.read_row_group(group, columns=list(columns), use_threads=False)
        if len(table) != (rows := self._groups[group][0]):
            raise ValueError(f"a row group has {len(table)} rows where its footer says {rows}")
        return [_checked(column, table[column]) for column in columns]


class DecodedGroup:
    """The decoded columns of one row group: first the columns that select rows, others with them or once needed."""

    def __init__(self, file: _IndexFile, number: int, columns: Sequence[str]) -> None:
        self._file, self._number = file, number
        self._cells, self.nbytes, self.counted = dict[str, Cells](), 0, 0
        names, steps = self._decode([name for name in columns if name not in _KEYS], _KEYS)
        words, self._codes = _texts(names.dictionary)
        self._names = _compact(arrow_arrays.numpy_of(names.indices))
        self._steps = _compact(arrow_arrays.numpy_of(steps))
        # A file that a writer flushed is in the order of steps; a compacted one is not.
        self._in_order = bool((self._steps[1:] >= self._steps[:-1]).all())
        self.nbytes += self._names.nbytes + self._steps.nbytes
        self._cells |= {"name": WordCells(words, self._names), "global_step": NumberCells(self._steps, None)}

    def positions(self, names: Collection[str] | None, span: tuple[int, int] | None) -> Positions:
        first, end = 0, len(self._steps)
        if span is not None and self._in_order:
            # numpy's search would convert the whole column for a number of another dtype.
            first, end = bisect_left(self._steps, span[0]), bisect_right(self._steps, span[1])
            span = None
        if names is None:
            steps = self._steps
            return np.flatnonzero((span[0] <= steps) & (steps <= span[1])) if span else np.arange(first, end)
        codes = [code for name in names if (code := self._codes.get(name)) is not None]
        here = self._names[first:end]
        if len(codes) == 1:
            found = np.flatnonzero(here == codes[0]) + first
        else:
            wanted = np.zeros(len(self._codes), bool)
            wanted[codes] = True
            found = np.flatnonzero(wanted[here]) + first
        return found if span is None else found[(span[0] <= self._steps[found]) & (self._steps[found] <= span[1])]

    def rows(self, positions: Positions, statistics: bool) -> list[SavedTensor]:
        if not len(positions):
            return []
        columns = [cells(positions) for cells in self.cells(LOCATION_COLUMNS)]
        if statistics:
            *values, histograms, sketches = [cells(positions) for cells in self.cells(_REST)]
            columns += [list(map(list, zip(*values, strict=True))), histograms, sketches]
        missing = [[None] * len(positions)] * (len(SavedTensor._fields) - len(columns))
        return list(map(SavedTensor._make, zip(*columns, *missing, strict=True)))

    def cells(self, columns: Sequence[str]) -> list[Cells]:
        """Return functions that return cells of these columns. Columns that are not decoded yet are read together."""
        if missing := [name for name in columns if name not in self._cells]:
            self._decode(missing)
        return [self._cells[name] for name in columns]

    def _decode(self, columns: Sequence[str], keys: Sequence[str] = ()) -> list[pa.Array]:
        """Decode columns, and return `keys`, which are read with them."""
        # Arrow's own memory is released at once: fresh memory for all row groups of a run would cost several times as
        # much as decoding them.
        stored = [name for name in columns if name not in self._file.empty]
        found = self._file.read(self._number, [*keys, *stored]) if keys or stored else []
        self._cells |= dict.fromkeys(columns, WordCells([None], None))
        for name, column in zip(stored, found[len(keys) :], strict=True):
            self._cells[name], nbytes = _cells(column)
            self.nbytes += nbytes
        return found[: len(keys)]


def _texts(texts: pa.Array) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return distinct texts, and the position of each. Files with equal texts share these objects."""
    buffers = (None if each is None else each.to_pybytes() for each in texts.buffers())
    return _texts_of(len(texts), texts.offset, *buffers)


@lru_cache(maxsize=32)
def _texts_of(count: int, offset: int, *buffers: bytes | None) -> tuple[tuple[str, ...], dict[str, int]]:
    held = [None if each is None else pa.py_buffer(each) for each in buffers]
    words = tuple(pa.Array.from_buffers(pa.string(), count, held, offset=offset).to_pylist())
    return words, {word: code for code, word in enumerate(words)}


def _checked(name: str, column: pa.ChunkedArray) -> pa.Array:
    expected, kind = _TYPES[name], column.type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if kind != expected and not pa.types.is_nested(kind):
        raise TypeError(f"the column {name} has the type {kind}, not {expected}")
    if name not in _NULLABLE and column.null_count:
        raise ValueError(f"the column {name} is null in some rows")
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _cells(column: pa.Array) -> tuple[Cells, int]:
    """Return a function that returns a column's cells at positions, and the bytes that it keeps in memory."""
    if column.null_count == len(column):
        return _always(None)
    if pa.types.is_dictionary(kind := column.type):
        return _words([*column.dictionary.to_pylist(), None], arrow_arrays.numpy_of(column.indices, missing=-1))
    if pa.types.is_primitive(kind):
        return _numbers(arrow_arrays.numpy_of(column), arrow_arrays.valid(column))
    if kind == _TYPES["shape"] and not column.values.null_count:
        return _lists(arrow_arrays.numpy_of(column.values), arrow_arrays.numpy_of(column.offsets))
    if kind.equals(SKETCH):  # as pyarrow has them
        valid = arrow_arrays.valid(column)
        return (lambda at: [column[i] if valid is None or valid[i] else None for i in at.tolist()]), column.nbytes
    # One by one: `take` imports pyarrow.compute, which takes 0.03 s.
    return lambda positions: [column[i].as_py() for i in positions.tolist()], column.nbytes


def _words(words: Sequence[str | None], codes: Array) -> tuple[Cells, int]:
    """Return cells of a column of few distinct texts."""
    if _is_constant(codes):
        return _always(words[codes[0]])
    codes = _compact(codes)
    return WordCells(words, codes), codes.nbytes


def _always(cell: Any) -> tuple[Cells, int]:
    return WordCells([cell], None), 0


@dataclass(frozen=True, slots=True)
class WordCells:
    """The cells of a column of few distinct ones. Without codes, all cells are the first one."""

    words: Sequence[Any]
    codes: Array | None

    def __call__(self, positions: Positions) -> list[Any]:
        if self.codes is None:
            return [self.words[0]] * len(positions)
        return [self.words[code] for code in self.codes[positions].tolist()]


@dataclass(frozen=True, slots=True)
class NumberCells:
    """The cells of a column of numbers, None where not `valid`."""

    numbers: Array
    valid: Array | None

    def __call__(self, positions: Positions) -> list[Any]:
        numbers: list[Any] = self.numbers[positions].tolist()
        if self.valid is None:
            return numbers
        valid = self.valid[positions].tolist()
        return [number if is_valid else None for number, is_valid in zip(numbers, valid, strict=True)]


def _numbers(numbers: Array, valid: Array | None) -> tuple[Cells, int]:
    if valid is None and _is_constant(numbers):
        return _always(numbers[0].item())
    numbers = _compact(numbers)
    return NumberCells(numbers, valid), numbers.nbytes + (0 if valid is None else valid.nbytes)


def _lists(elements: Array, offsets: Array) -> tuple[Cells, int]:
    """Return cells of a column of lists, whose elements lie one after another."""
    length = int(offsets[1] - offsets[0])
    if _is_constant(np.diff(offsets)):
        rows = elements[offsets[0] : offsets[-1]].reshape(-1, length) if length else elements[:0]
        if not length or all(map(_is_constant, rows.T)):
            return _always(elements[offsets[0] : offsets[1]].tolist())
    elements, offsets = _compact(elements), _compact(offsets)
    return ListCells(elements, offsets), elements.nbytes + offsets.nbytes


@dataclass(frozen=True, slots=True)
class ListCells:
    """The cells of a column of lists, whose elements lie one after another."""

    elements: Array
    offsets: Array

    def __call__(self, positions: Positions) -> list[list[Any]]:
        ends = zip(self.offsets[positions].tolist(), self.offsets[positions + 1].tolist(), strict=True)
        return [self.elements[begin:end].tolist() for begin, end in ends]


def _is_constant(values: Array) -> bool:
    """Return whether all values are the same, bit by bit: 0.0 is not -0.0."""
    bits = values.view(f"i{values.itemsize}")
    return bool(bits[-1] == bits[0] and (bits == bits[0]).all())


def _compact(values: Array) -> Array:
    """Return the numbers in memory of their own, integers in the smallest dtype that holds them."""
    if values.dtype.kind == "i" and len(values):
        least, most = values.min(), values.max()
        for kind in (np.int16, np.int32):
            if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
                return values.astype(kind)
    return values.copy()


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)  # a cast takes time even if the types are equal


def _empty_columns(metadata: pq.FileMetaData) -> set[str]:
    """Return the columns that are null in all rows by the footer, without decoding.

    Raises:
        TypeError, ValueError, RecursionError: The footer lacks it, or is damaged.
    """
    return {*_NULLABLE.intersection(json.loads((metadata.metadata or {}).get(FOOTER_EMPTY, b"[]")))}


def described_groups(metadata: pq.FileMetaData) -> list[Any]:
    """Return the number of rows of each row group, and its least and greatest name and global step.

    Parquet's own statistics are not read: parsing them for a thousand columns in Python takes ten times as long, and
    pyarrow's objects end the process if they are damaged.

    Raises:
        TypeError, ValueError, RecursionError: The footer lacks it, or is damaged.
    """
    groups: list[Any] = json.loads((metadata.metadata or {}).get(FOOTER_GROUPS, b""))
    if len(groups) != metadata.num_row_groups:
        raise ValueError(f"its footer describes {len(groups)} row groups of {metadata.num_row_groups}")
    return groups
