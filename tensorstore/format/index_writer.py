"""Writes the Parquet files of the index: one row for each saved tensor, one file for each flush."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ..dtypes import Array
from ..errors import AlreadyPublished
from ..statistics.definitions import STATISTICS
from ..storage.open import Sink, Storage, translated
from .arrow_arrays import broadcast, lists, numbers, numpy_of, structs, texts
from .checksum import sealed
from .chunk_merge import discard
from .index_types import IndexedStep, IndexSummary, footer_entries, summarize
from .parquet_writer import distinct
from .schema import FOOTER_COMPACTED, FOOTER_EMPTY, FOOTER_GROUPS, HISTOGRAM, INDEX_SCHEMA, SKETCH

# Small enough that one step is read without decoding a whole flush, large enough to compress.
_ROW_GROUP_ROWS = 32_768
# For compacted files. In 2 million rows of 500 tensors, one tensor is read in a quarter of the time that the order of
# steps takes, and one step in a third of the time that the order of names takes.
_COMPACTED_ROW_GROUP_ROWS = 16_384
TILE_STEPS = 128  # whose rows lie together, by name
_TILE = "tile"
# These grow from row to row. Stored as differences, they take a twelfth of the space and a fifth of the decoding time.
_GROWING = ["saved_at", "offset", "row", "order"]
# Neighboring numbers of a sketch have most bytes in common. Stored so, they take half the space of zstd alone.
_OF_SKETCHES = {"sketch.values.list.element": "BYTE_STREAM_SPLIT", "sketch.counts.list.element": "DELTA_BINARY_PACKED"}
# These columns hardly ever repeat, and checking that would take a third of the time of a small flush.
_UNIQUE = [*STATISTICS, "digest", "sketch"]
_REPEATING = [name for name in INDEX_SCHEMA.names if name not in _UNIQUE and name not in _GROWING]
# The columns by which queries select rows. Floating-point columns have no statistics: NaN is in no minimum and maximum,
# so engines would skip its row groups.
_SELECTING = ["name", "mode", "mode_step", "global_step", "worker"]


def write_index(sink: Sink, table: pa.Table, summary: IndexSummary) -> None:
    """Write rows, in their order, into one index file. This does not publish the sink."""
    names = [each.name for names in summary.name_sets for each in names]
    _write(sink, [table], footer_entries(summary), _ROW_GROUP_ROWS, names)


def indexed_rows(worker: str, steps: Sequence[IndexedStep], previous: str) -> tuple[pa.Table, IndexSummary]:
    """Return the rows of `steps` for an index file, in their order, and the summary for its footer.

    `previous` is the path of the worker's index file before this one, empty for the first.
    """
    return _table(worker, steps), summarize(steps, previous)


def write_compacted(sink: Sink, table: pa.Table, summary: IndexSummary) -> None:
    """Write the rows of several index files into one. This does not publish the sink.

    Queries for one tensor and queries for one step both find their rows close together: the rows lie in tiles of steps,
    in each of them by name, and the minima and maxima of the small row groups say which ones to read.
    """
    tiles = numpy_of(table["global_step"].combine_chunks()) // TILE_STEPS
    table = table.append_column(_TILE, numbers(tiles, pa.int64()))
    table = table.sort_by([(key, "ascending") for key in (_TILE, "name", "global_step")]).drop_columns([_TILE])
    footer = {**footer_entries(summary), FOOTER_COMPACTED: f"{time.time():.3f}".encode()}
    cuts = [0, *_cuts(np.sort(tiles)), len(table)]
    _write(sink, [table.slice(a, b - a) for a, b in pairwise(cuts)], footer, _COMPACTED_ROW_GROUP_ROWS)


def publish_compacted(
    storage: Storage, path: str, rows: pa.Table, summary: IndexSummary, new_chunks: Sequence[str] = ()
) -> None:
    """Publish the rows of several index files as one, or delete the `new_chunks` that no other file names.

    Raises:
        AlreadyPublished: Another process was quicker.
    """
    sink, is_written = storage.sink(path), False
    try:
        with translated(path, "write"):
            write_compacted(sink, rows, summary)
        is_written = True
        sink.publish()
    except BaseException as exc:
        sink.abort()
        # After any other error of `publish` the file may exist all the same, and name the new chunks.
        if not is_written or isinstance(exc, AlreadyPublished):
            discard(storage, new_chunks)
        raise


def _cuts(tiles: npt.NDArray[np.int64]) -> list[int]:
    """Return the first row of each tile that has its own row groups.

    A row group with the last names of one tile and the first names of the next would be read for every name. Small
    tiles share a row group.
    """
    cuts = [0]
    for border in (np.flatnonzero(np.diff(tiles)) + 1).tolist():
        if min(border - cuts[-1], len(tiles) - border) >= _COMPACTED_ROW_GROUP_ROWS // 2:
            cuts.append(border)
    return cuts[1:]


def _write(
    sink: Sink,
    pieces: Sequence[pa.Table],
    footer: Mapping[bytes, bytes],
    row_group_rows: int,
    names: Sequence[str] = (),
) -> None:
    """Write the rows. `names` are the names of all tensors; without them, each row group is searched for its names."""
    groups = [group for piece in pieces for group in _row_groups(piece, row_group_rows)]
    schema = pieces[0].schema
    described = json.dumps([_description(group, names) for group in groups], separators=(",", ":"))
    empty = json.dumps([name for name in schema.names if all(each[name].null_count == len(each) for each in pieces)])
    with sealed_parquet(
        sink,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=_REPEATING,
        column_encoding={**dict.fromkeys(_GROWING, "DELTA_BINARY_PACKED"), **_OF_SKETCHES},
        write_statistics=_SELECTING,
        store_schema=False,
    ) as writer:
        writer.add_key_value_metadata({**footer, FOOTER_GROUPS: described.encode(), FOOTER_EMPTY: empty.encode()})
        for group in groups:
            writer.write_table(group, row_group_size=len(group))


def _row_groups(rows: pa.Table, about: int) -> list[pa.Table]:
    """Return parts of nearly equal size, because reading a small last row group costs as much as a full one."""
    size = max(1, -(-len(rows) // max(1, round(len(rows) / about))))
    return [rows.slice(begin, size) for begin in range(0, len(rows), size)]


def _description(rows: pa.Table, names: Sequence[str]) -> list[Any]:
    """Return the number of rows of a row group, and its least and greatest names and global steps."""
    names, steps = names or rows["name"].to_pylist(), numpy_of(rows["global_step"].combine_chunks())
    return [len(rows), [min(names), max(names)], [int(steps.min()), int(steps.max())]]


def _table(worker: str, steps: Sequence[IndexedStep]) -> pa.Table:
    table = pa.Table.from_arrays(_columns(worker, steps), schema=INDEX_SCHEMA)
    if all(indexed.last is None for indexed in steps):
        return table
    begins = accumulate((len(indexed.specs) for indexed in steps), initial=0)
    rows = [
        begin + row
        for begin, indexed in zip(begins, steps, strict=False)
        for row in (range(len(indexed.specs)) if indexed.last is None else indexed.last)
    ]
    return table.take(numbers(rows, pa.int64()))


def _columns(worker: str, steps: Sequence[IndexedStep]) -> list[pa.Array]:
    specs, of_spec = distinct([spec for indexed in steps for spec in indexed.specs])
    counts = [len(indexed.specs) for indexed in steps]
    of_step = np.repeat(np.arange(len(steps)), counts)
    # Converted once for each distinct spec: a Python object for every row would take most of the time.
    by_spec = [
        texts([spec.plan.name for spec in specs]),
        texts([spec.dtype for spec in specs]),
        lists([spec.shape for spec in specs], numbers([size for spec in specs for size in spec.shape], pa.int64())),
        numbers([spec.nbytes for spec in specs], pa.int64()),
        lists(
            [spec.plan.collections for spec in specs], texts([each for spec in specs for each in spec.plan.collections])
        ),
        texts([spec.plan.parameter for spec in specs]),
    ]
    by_step = [
        texts([indexed.step.mode.name for indexed in steps]),
        numbers([indexed.step.mode_step for indexed in steps], pa.int64()),
        numbers([indexed.step.global_step for indexed in steps], pa.int64()),
    ]
    name, dtype, shape, nbytes, collections, parameter = (broadcast(column, of_spec) for column in by_spec)
    saved_at_us = np.array([each for indexed in steps for each in indexed.saved_at_ns], np.int64) // 1000
    rows = _Rows(steps, counts)
    return [
        name,
        *(broadcast(column, of_step) for column in by_step),
        broadcast(texts([worker]), np.zeros(len(of_spec), np.intp)),
        dtype,
        shape,
        nbytes,
        numbers(saved_at_us, pa.timestamp("us", tz="UTC")),
        collections,
        rows.consecutive(lambda indexed: indexed.scalars, np.float64),
        *rows.statistics(),
        rows.pairs_of_lists(lambda indexed: indexed.histograms, HISTOGRAM),
        rows.pairs_of_lists(lambda indexed: indexed.sketches, SKETCH),
        *rows.spans(),
        parameter,
        rows.consecutive(lambda indexed: indexed.digests, np.uint64),
        rows.orders(),
    ]


_Cells = Sequence[tuple[int, Sequence[float]]]
_Pair = tuple[Sequence[float] | Array, ...]


class _Rows:
    """The rows of several steps, and their columns that may be null."""

    def __init__(self, steps: Sequence[IndexedStep], counts: Sequence[int]) -> None:
        self._count = sum(counts)
        self._steps = list(zip(accumulate(counts, initial=0), steps, strict=False))

    def consecutive(self, cells_of: Callable[[IndexedStep], _Cells], dtype: type[np.generic]) -> pa.Array:
        """Return a column of the cells of consecutive rows that a step has, each list with its first row."""
        values, valid = self._column(dtype)
        for begin, indexed in self._steps:
            for first, cells in cells_of(indexed):
                rows = slice(begin + first, begin + first + len(cells))
                values[rows], valid[rows] = np.array(cells, dtype), True
        return self._cells(values, valid)

    def orders(self) -> pa.Array:
        values, valid = self._column(np.int32)
        for begin, indexed in self._steps:
            if indexed.is_ordered:
                end = begin + len(indexed.specs)
                # Only rows that count have a place.
                rows = slice(begin, end) if indexed.last is None else np.array(indexed.last, np.intp) + begin
                values[rows] = np.arange(len(indexed.saved))
                valid[begin:end] = True
        return self._cells(values, valid)

    def statistics(self) -> list[pa.Array]:
        saved: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}
        for begin, indexed in self._steps:
            for names, (rows, cells) in indexed.statistics.items():
                all_rows, all_cells = saved.setdefault(names, ([], []))
                all_rows += [begin + row for row in rows]
                all_cells += cells
        columns = {name: self._column(np.float64) for name in set().union(*saved)}
        for names, (rows, cells) in saved.items():
            for name, column in zip(names, np.array(cells, np.float64).reshape(len(rows), len(names)).T, strict=True):
                values, valid = columns[name]
                values[rows], valid[rows] = column, True
        empty = pa.nulls(self._count, pa.float64())
        return [self._cells(*columns[name]) if name in columns else empty for name in STATISTICS]

    def pairs_of_lists(self, pairs_of: Callable[[IndexedStep], Mapping[int, _Pair]], kind: pa.DataType) -> pa.Array:
        """Return a column of the pairs of lists that some rows of a step have: histograms, or sketches."""
        saved = {begin + row: found for begin, indexed in self._steps for row, found in pairs_of(indexed).items()}
        if not saved:
            return pa.nulls(self._count, kind)
        columns = []
        for part, each in enumerate(kind):
            cells: list[Sequence[float] | Array] = [()] * self._count
            for row, found in saved.items():
                cells[row] = found[part]
            numbered = np.concatenate([np.asarray(cell) for cell in cells if len(cell)] or [np.empty(0)])
            columns.append(lists(cells, numbers(numbered, each.type.value_type)))
        valid = np.zeros(self._count, bool)
        valid[list(saved)] = True
        return structs(columns, kind, valid)

    def spans(self) -> list[pa.Array]:
        """Return the chunk, offset, row group, row and number of parts of each raw value."""
        chunks: dict[str, int] = {}
        of_chunk, valid = self._column(np.intp)
        offsets, has_offset = self._column(np.int64)
        row_groups, rows, parts = (self._column(np.int32)[0] for _ in range(3))
        for begin, indexed in self._steps:
            for first, chunk, span in indexed.spans:
                cells = slice(begin + first, begin + first + span.count)
                of_chunk[cells], valid[cells] = chunks.setdefault(chunk, len(chunks)), True
                row_groups[cells], parts[cells] = span.row_group, span.parts
                rows[cells] = np.arange(span.row, span.row + span.count)
                if span.offsets is not None:
                    offsets[cells], has_offset[cells] = span.offsets, True
        return [
            broadcast(texts(list(chunks)), of_chunk, valid) if chunks else pa.nulls(self._count, pa.string()),
            self._cells(offsets, has_offset),
            *(self._cells(column, valid) for column in (row_groups, rows, parts)),
        ]

    def _column(self, dtype: type[np.generic]) -> tuple[Array, Array]:
        return np.zeros(self._count, dtype), np.zeros(self._count, np.bool_)

    def _cells(self, values: Array, valid: Array) -> pa.Array:
        """Return a column. For nulls only, it is faster to make a column than to convert one."""
        dtype = pa.from_numpy_dtype(values.dtype)
        return numbers(values, dtype, valid) if valid.any() else pa.nulls(self._count, dtype)


@contextmanager
def sealed_parquet(sink: Sink, schema: pa.Schema, **options: Any) -> Iterator[pq.ParquetWriter]:
    """Write a Parquet file with its seal into a sink, without publishing it. Yield pyarrow's writer of the rows.

    The file is built in memory, because the seal comes before the footer and has a checksum of it.
    """
    file = pa.BufferOutputStream()
    with pq.ParquetWriter(file, schema, write_page_checksum=True, **options) as writer:
        yield writer
    sink.append(sealed(sink.path, memoryview(file.getvalue())))
