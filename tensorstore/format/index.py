"""The index: one row per saved tensor, one file per flush, and a summary of the file in its footer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ..dtypes import Array
from ..errors import CorruptFile, UnknownFormat
from ..mode import ModeKeys
from ..statistics.single import STATISTICS
from ..storage.open import Sink
from .arrow_arrays import lists, numbers, numpy_of, spread, structs, texts
from .chunk_writer import Places
from .parquet_writer import distinct
from .record import Kind, Step
from .schema import (
    FOOTER_CHUNKS,
    FOOTER_COMPACTED,
    FOOTER_FORMAT,
    FOOTER_NAMES,
    FOOTER_STEPS,
    FORMAT,
    HISTOGRAM,
    INDEX_SCHEMA,
    LATER_COLUMNS,
    is_chunk_path,
)

# Small enough that one step is read without decoding a whole flush, large enough to compress.
_ROW_GROUP_ROWS = 32_768
# Of compacted files. Over 2 million rows of 500 tensors, one tensor takes a quarter of the time that it takes in the
# order of steps, and one step a third of what it takes by name.
_COMPACTED_ROW_GROUP_ROWS = 16_384
_TILE_STEPS = 128
_TILE = "tile"
# These grow from row to row: as differences they take a twelfth of the space, and are decoded in a fifth of the time.
_GROWING = ["saved_at", "offset", "row"]
# Statistics hardly ever repeat; looking whether they do would take a third of the time of a small flush.
_REPEATING = [name for name in INDEX_SCHEMA.names if name not in STATISTICS and name not in _GROWING]
# Where these are the same in all rows of a row group, or missing in all, its reader need not decode them.
_OFTEN_THE_SAME = ["worker", "dtype", "nbytes", "chunk", "row_group", "parts"]
_SORTED = ["name", "mode", "mode_step", "global_step"]


class IndexedRow(NamedTuple):
    """What one row says of its tensor, but for where the raw value is."""

    kind: Kind
    saved_at: int
    scalar: float | None
    statistics: Mapping[str, float]
    histogram: tuple[list[float], list[int]] | None


@dataclass(slots=True)
class IndexedStep:
    """A step and its rows, as the writer knows them before the file is made: column by column, in the order in which
    they were saved."""

    step: Step
    kinds: list[Kind] = field(default_factory=list)
    saved_at: list[int] = field(default_factory=list)
    scalars: list[tuple[int, Sequence[float]]] = field(default_factory=list)
    """Those of consecutive rows, with the first of these."""
    statistics: dict[int, Mapping[str, float]] = field(default_factory=dict)
    histograms: dict[int, tuple[list[float], list[int]]] = field(default_factory=dict)
    places: list[tuple[int, str, Places]] = field(default_factory=list)
    """Of the raw values of consecutive rows: the first of these, the chunk, and where they lie there."""
    last: list[int] | None = None
    """The rows that count, if not all do: a tensor saved twice in a step keeps its last value."""

    def add(self, kinds: Sequence[Kind], saved_at: Sequence[int]) -> int:
        """Add rows, and give the first of them."""
        first = len(self.kinds)
        self.kinds += kinds
        self.saved_at += saved_at
        return first

    def close(self) -> None:
        """There will be no more rows."""
        last = {kind.plan.name: row for row, kind in enumerate(self.kinds)}
        if len(last) < len(self.kinds):
            self.last = sorted(last.values())

    @property
    def saved(self) -> list[Kind]:
        """What the rows that count are of."""
        return self.kinds if self.last is None else [self.kinds[row] for row in self.last]

    def rows(self) -> Iterator[IndexedRow]:
        """The rows that count, one by one."""
        scalars = {row: scalar for first, found in self.scalars for row, scalar in enumerate(found, first)}
        for row in range(len(self.kinds)) if self.last is None else self.last:
            statistics, histogram = self.statistics.get(row, {}), self.histograms.get(row)
            yield IndexedRow(self.kinds[row], self.saved_at[row], scalars.get(row), statistics, histogram)


class StepSummary(NamedTuple):
    mode: str
    mode_step: int
    global_step: int
    saved_at: int
    """Microseconds since 1970, when the last tensor of the step was saved."""
    names: int
    """Which of the file's name sets the step holds."""


class SavedTensor(NamedTuple):
    """One row of the index as a reader sees it. What a foreign hand wrote into it is not checked yet."""

    name: str
    mode: str
    mode_step: int
    global_step: int
    worker: str
    dtype: str
    shape: list[int]
    nbytes: int
    scalar: float | None
    chunk: str | None
    offset: int | None
    row_group: int | None
    row: int | None
    parts: int | None
    statistics: list[float | None] | None = None
    """In the order of STATISTICS; None if the question did not ask for them."""
    histogram: dict[str, Any] | None = None

    @property
    def has_raw(self) -> bool:
        return self.scalar is not None or self.chunk is not None


class NamedTensor(NamedTuple):
    name: str
    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What the footer of an index file says of its rows."""

    rows: int
    steps: list[StepSummary]
    name_sets: list[tuple[NamedTensor, ...]]
    chunks: list[str]
    compacted_at: float | None = None
    """When the file took the place of others, in seconds since 1970; None for what a writer flushed."""


def write_index(sink: Sink, worker: str, steps: Sequence[IndexedStep]) -> None:
    """Write the rows of `steps`, in their order, into one index file. The sink is not published yet."""
    table, summary = indexed_rows(worker, steps)
    _write(sink, [table], _footer(summary), _ROW_GROUP_ROWS)


def indexed_rows(worker: str, steps: Sequence[IndexedStep]) -> tuple[pa.Table, IndexSummary]:
    """The rows of `steps`, in their order, as an index file has them, and what its footer says of them."""
    return _table(worker, steps), _summary(steps)


def write_compacted(sink: Sink, table: pa.Table, summary: IndexSummary) -> None:
    """Write the rows of several index files into one. The sink is not published yet.

    A question for one tensor and one for one step shall both find their rows close together. So the rows are laid out
    in tiles of steps, in each of them by name, and the minima and maxima of the small row groups tell where to look.
    """
    tiles = numpy_of(table["global_step"].combine_chunks()) // _TILE_STEPS
    table = table.append_column(_TILE, numbers(tiles, pa.int64()))
    table = table.sort_by([(key, "ascending") for key in (_TILE, "name", "global_step")]).drop_columns([_TILE])
    footer = {**_footer(summary), FOOTER_COMPACTED: f"{time.time():.3f}".encode()}
    cuts = [0, *_cuts(np.sort(tiles)), len(table)]
    _write(sink, [table.slice(a, b - a) for a, b in pairwise(cuts)], footer, _COMPACTED_ROW_GROUP_ROWS)


def _cuts(tiles: npt.NDArray[np.int64]) -> list[int]:
    """Before which rows a tile begins whose row groups are its own: one with names of two tiles, of the last and the
    first ones, would be read for every name. Small tiles share a row group."""
    cuts = [0]
    for border in (np.flatnonzero(np.diff(tiles)) + 1).tolist():
        if min(border - cuts[-1], len(tiles) - border) >= _COMPACTED_ROW_GROUP_ROWS // 2:
            cuts.append(border)
    return cuts[1:]


def joined(summaries: Sequence[IndexSummary]) -> IndexSummary:
    """The summary of the rows of several files, in the order of their flushes."""
    sets: dict[tuple[NamedTensor, ...], int] = {}
    steps = [
        step._replace(names=sets.setdefault(summary.name_sets[step.names], len(sets)))
        for summary in summaries
        for step in summary.steps
    ]
    chunks = dict.fromkeys(chunk for summary in summaries for chunk in summary.chunks)
    return IndexSummary(sum(summary.rows for summary in summaries), steps, list(sets), list(chunks))


def read_rows(path: str, data: bytes | bytearray) -> pa.Table:
    """All rows of the index file whose bytes are `data`. Raises CorruptFile."""
    try:
        table = with_later_columns(pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False))
        if set(table.column_names) != set(INDEX_SCHEMA.names):
            raise ValueError("its columns are not those of an index file")
        return table.select(INDEX_SCHEMA.names).cast(INDEX_SCHEMA)
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise CorruptFile(path, f"its rows cannot be read: {exc}") from exc


def with_later_columns(table: pa.Table) -> pa.Table:
    """Return the rows of an index file with null in the columns that it lacks, because it is of an earlier release."""
    for name in LATER_COLUMNS:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(len(table), INDEX_SCHEMA.field(name).type))
    return table


def _write(sink: Sink, pieces: Sequence[pa.Table], footer: Mapping[bytes, bytes], row_group_rows: int) -> None:
    with pq.ParquetWriter(
        sink.file,
        pieces[0].schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=_REPEATING,
        column_encoding=dict.fromkeys(_GROWING, "DELTA_BINARY_PACKED"),
        # None of a floating-point column: NaN is in no minimum and maximum, so engines would skip row groups with it.
        write_statistics=[*_SORTED, *_OFTEN_THE_SAME],
        store_schema=False,
    ) as writer:
        writer.add_key_value_metadata(footer)
        for piece in pieces:
            # Row groups of nearly the same size: a small rest would cost its reader as much as a whole one.
            groups = max(1, round(len(piece) / row_group_rows))
            writer.write_table(piece, row_group_size=max(1, -(-len(piece) // groups)))


def _table(worker: str, steps: Sequence[IndexedStep]) -> pa.Table:
    table = pa.Table.from_arrays(_columns(worker, steps), schema=INDEX_SCHEMA)
    if all(indexed.last is None for indexed in steps):
        return table
    begins = accumulate((len(indexed.kinds) for indexed in steps), initial=0)
    rows = [
        begin + row
        for begin, indexed in zip(begins, steps, strict=False)
        for row in (range(len(indexed.kinds)) if indexed.last is None else indexed.last)
    ]
    return table.take(numbers(rows, pa.int64()))


def _columns(worker: str, steps: Sequence[IndexedStep]) -> list[pa.Array]:
    kinds, of_kind = distinct([kind for indexed in steps for kind in indexed.kinds])
    counts = [len(indexed.kinds) for indexed in steps]
    of_step = np.repeat(np.arange(len(steps)), counts)
    # Converted once for each distinct one: a Python object for every row would take most of the time.
    by_kind = [
        texts([kind.plan.name for kind in kinds]),
        texts([kind.dtype for kind in kinds]),
        lists([kind.shape for kind in kinds], numbers([size for kind in kinds for size in kind.shape], pa.int64())),
        numbers([kind.nbytes for kind in kinds], pa.int64()),
        lists(
            [kind.plan.collections for kind in kinds], texts([each for kind in kinds for each in kind.plan.collections])
        ),
        texts([kind.plan.parameter for kind in kinds]),
    ]
    by_step = [
        texts([indexed.step.mode.name for indexed in steps]),
        numbers([indexed.step.mode_step for indexed in steps], pa.int64()),
        numbers([indexed.step.global_step for indexed in steps], pa.int64()),
    ]
    name, dtype, shape, nbytes, collections, parameter = (spread(column, of_kind) for column in by_kind)
    saved_at = np.array([each for indexed in steps for each in indexed.saved_at], np.int64) // 1000
    rows = _Rows(steps, counts)
    return [
        name,
        *(spread(column, of_step) for column in by_step),
        spread(texts([worker]), np.zeros(len(of_kind), np.intp)),
        dtype,
        shape,
        nbytes,
        numbers(saved_at, pa.timestamp("us", tz="UTC")),
        collections,
        rows.scalars(),
        *rows.statistics(),
        rows.histograms(),
        *rows.places(),
        parameter,
    ]


class _Rows:
    """The rows of several steps, one after another, and those of their columns that not every row has a cell in."""

    def __init__(self, steps: Sequence[IndexedStep], counts: Sequence[int]) -> None:
        self._count = sum(counts)
        self._steps = list(zip(accumulate(counts, initial=0), steps, strict=False))

    def scalars(self) -> pa.Array:
        values, valid = self._column(np.float64)
        for begin, indexed in self._steps:
            for first, scalars in indexed.scalars:
                rows = slice(begin + first, begin + first + len(scalars))
                values[rows], valid[rows] = scalars, True
        return self._cells(values, valid)

    def statistics(self) -> list[pa.Array]:
        saved = {begin + row: found for begin, indexed in self._steps for row, found in indexed.statistics.items()}
        names = {name for found in saved.values() for name in found}
        rows = np.array(list(saved), np.intp)
        columns = []
        for name in STATISTICS:
            values, valid = self._column(np.float64)
            if name in names:
                cells = [found.get(name) for found in saved.values()]
                values[rows], valid[rows] = cells, [cell is not None for cell in cells]
            columns.append(self._cells(values, valid))
        return columns

    def histograms(self) -> pa.Array:
        saved = {begin + row: found for begin, indexed in self._steps for row, found in indexed.histograms.items()}
        if not saved:
            return pa.nulls(self._count, HISTOGRAM)
        columns = []
        for part, each in enumerate(HISTOGRAM):
            cells: list[Sequence[float]] = [()] * self._count
            for row, found in saved.items():
                cells[row] = found[part]
            columns.append(lists(cells, numbers(list(chain.from_iterable(cells)), each.type.value_type)))
        valid = np.zeros(self._count, bool)
        valid[list(saved)] = True
        return structs(columns, HISTOGRAM, valid)

    def places(self) -> list[pa.Array]:
        """The chunk, offset, row group, row and number of parts of each raw value."""
        chunks: dict[str, int] = {}
        of_chunk, valid = self._column(np.intp)
        offsets, has_offset = self._column(np.int64)
        row_groups, rows, parts = (self._column(np.int32)[0] for _ in range(3))
        for begin, indexed in self._steps:
            for first, chunk, places in indexed.places:
                cells = slice(begin + first, begin + first + places.count)
                of_chunk[cells], valid[cells] = chunks.setdefault(chunk, len(chunks)), True
                row_groups[cells], parts[cells] = places.row_group, places.parts
                rows[cells] = np.arange(places.row, places.row + places.count)
                if places.offsets is not None:
                    offsets[cells], has_offset[cells] = places.offsets, True
        return [
            spread(texts(list(chunks)), of_chunk, valid) if chunks else pa.nulls(self._count, pa.string()),
            self._cells(offsets, has_offset),
            *(self._cells(column, valid) for column in (row_groups, rows, parts)),
        ]

    def _column(self, dtype: type[np.generic]) -> tuple[Array, Array]:
        return np.zeros(self._count, dtype), np.zeros(self._count, np.bool_)

    def _cells(self, values: Array, valid: Array) -> pa.Array:
        """A column that may hold nothing at all, which is told faster than converted."""
        kind = pa.from_numpy_dtype(values.dtype)
        return numbers(values, kind, valid) if valid.any() else pa.nulls(self._count, kind)


def _summary(steps: Sequence[IndexedStep]) -> IndexSummary:
    """Most steps hold the same tensors: each distinct set of names is kept once, and a step refers to it."""
    sets: dict[tuple[NamedTensor, ...], int] = {}
    known: dict[tuple[Kind, ...], int] = {}
    summaries = []
    for indexed in steps:
        kinds = tuple(indexed.saved)
        number = known.get(kinds)
        if number is None:
            names = tuple(NamedTensor(kind.plan.name, kind.plan.collections) for kind in kinds)
            number = known[kinds] = sets.setdefault(names, len(sets))
        saved_at = max(indexed.saved_at, default=0) // 1000
        step = indexed.step
        summaries.append(StepSummary(step.mode.name, step.mode_step, step.global_step, saved_at, number))
    chunks = dict.fromkeys(chunk for indexed in steps for _, chunk, _ in indexed.places)
    return IndexSummary(sum(len(indexed.saved) for indexed in steps), summaries, list(sets), list(chunks))


def _footer(summary: IndexSummary) -> dict[bytes, bytes]:
    return {
        FOOTER_FORMAT: str(FORMAT).encode(),
        FOOTER_NAMES: json.dumps(summary.name_sets, separators=(",", ":")).encode(),
        FOOTER_STEPS: json.dumps(summary.steps, separators=(",", ":")).encode(),
        FOOTER_CHUNKS: json.dumps(summary.chunks, separators=(",", ":")).encode(),
    }


def read_summary(path: str, tail: bytes, size: int) -> IndexSummary | int:
    """The summary of the index file of `size` bytes that ends in `tail`; or, if its footer is longer than the tail, how
    many bytes are needed. Raises CorruptFile, or UnknownFormat for a file of a later release."""
    if size < 12 or tail[-4:] != b"PAR1":
        raise CorruptFile(path, f"its {size} bytes do not end like a Parquet file: it is torn, or not an index file")
    needed = int.from_bytes(tail[-8:-4], "little") + 8
    if needed > size:
        raise CorruptFile(path, "its footer claims to be longer than the file")
    if needed > len(tail):
        return needed
    try:
        # A Parquet reader asks for the end of a file only, so the end is a file good enough.
        metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + tail[-needed:]))
        footer = metadata.metadata or {}
        number = int(footer[FOOTER_FORMAT])
    except (pa.ArrowException, OSError, KeyError, ValueError) as exc:
        raise CorruptFile(path, f"it has no index footer: {exc}") from exc
    if number > FORMAT:
        raise UnknownFormat(
            path, f"the file has format {number}, this release reads up to {FORMAT}: upgrade tensortrial"
        )
    try:
        name_sets = _name_sets(footer[FOOTER_NAMES])
        steps = [_step_summary(step, len(name_sets)) for step in json.loads(footer[FOOTER_STEPS])]
        chunks = [_chunk_path(path) for path in json.loads(footer[FOOTER_CHUNKS])]
        compacted_at = float(footer[FOOTER_COMPACTED]) if FOOTER_COMPACTED in footer else None
        return IndexSummary(metadata.num_rows, steps, name_sets, chunks, compacted_at)
    except (KeyError, ValueError, TypeError, OverflowError, RecursionError) as exc:
        raise CorruptFile(path, f"its footer cannot be understood: {exc}") from exc


def _step_summary(values: list[Any], name_sets: int) -> StepSummary:
    mode, mode_step, global_step, saved_at, names = values
    step = StepSummary(ModeKeys[mode].name, int(mode_step), int(global_step), int(saved_at), int(names))
    if not 0 <= step.names < name_sets:
        raise ValueError(f"step {step.global_step} refers to name set {step.names} of {name_sets}")
    if not all(0 <= number < 1 << 63 for number in step[1:]):
        raise ValueError(f"there is no step like {step}")
    return step


def _chunk_path(path: Any) -> str:
    if not is_chunk_path(path):
        raise ValueError(f"{path!r} is no path of a chunk")
    return str(path)


@lru_cache(maxsize=64)
def _name_sets(text: bytes) -> list[tuple[NamedTensor, ...]]:
    """Flush after flush has the same names: they are parsed once, and shared."""
    return [tuple(NamedTensor(_text(name), tuple(map(_text, of))) for name, of in names) for names in json.loads(text)]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    value.encode()  # JSON can spell characters that no text holds
    return value
