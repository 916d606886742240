"""Merges small chunks of raw values, so that one tensor, and one step, lie in few byte ranges of few files."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import CorruptFile, FileError, MissingChunk
from ..mode import ModeKeys
from ..storage.open import Storage
from .arrow_arrays import column, numbers, numpy_of, texts
from .checksum import read_ends, read_seal
from .chunk_reader import ChunkFile, check_digests, read_bytes
from .chunk_writer import ChunkWriter, ValueSpan
from .footer import footer_of, num_rows
from .index_types import SavedTensor
from .record import Plan, Step, TensorSpec
from .schema import INDEX_SCHEMA, FlushRange, folder_of, is_chunk_of

_LARGE_BYTES = 64 << 20
"""A chunk of at least this size is not merged."""
_MOST_BYTES = 512 << 20
"""No chunk gets much larger than this."""
_TILE_BYTES = 8 << 20
"""Steps of at most this size together are laid out by name. One tensor is then read in pieces of many steps, and one
step lies within this many bytes, which one request fetches."""
_BATCH_BYTES = 32 << 20
_COMPRESSED_ROW_GROUP_BYTES = 1 << 20
"""Smaller than what a writer compresses together, since a row group holds few of the tensors of a step."""

_SAVED = [name for name in SavedTensor._fields if name in INDEX_SCHEMA.names]
_LOCATION = ["chunk", "offset", "row_group", "row", "parts"]

Numbers = np.ndarray[Any, Any]


@dataclass
class MergedChunks:
    """The result of merging the chunks of some rows of the index."""

    rows: pa.Table
    """The rows, which now name the new chunks instead of the merged ones."""
    merged: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    """Chunks that are published, and that no index file names yet."""

    def chunks(self) -> list[str]:
        """Return all chunks that the rows name, in the order of their steps."""
        order = pc.sort_indices(self.rows, [("global_step", "ascending")])
        return self.rows["chunk"].take(order).unique().drop_null().to_pylist()


def merge_chunks(
    storage: Storage,
    rows: pa.Table,
    worker: str,
    flushes: FlushRange,
    codec: str,
    damaged: Collection[str] = (),
    most_bytes: int | None = None,
) -> MergedChunks | None:
    """Copy the values of small chunks into large ones.

    `rows` are all rows of the worker's `flushes`. Chunks with values of other flushes, and `damaged` ones, stay.

    Returns:
        The merged chunks; None, and nothing is done, if there are more than `most_bytes` to copy.

    Raises:
        MissingChunk: A chunk is missing. Nothing new is left behind.
        CorruptFile: A chunk cannot be read. Nothing new is left behind.
    """
    done = MergedChunks(rows)
    if rows["chunk"].null_count == len(rows):
        return done
    small = _small_chunks(storage, rows, worker, damaged)
    folders = [(folder, [*sizes]) for folder, sizes in small.items() if len(sizes) > 1]
    if most_bytes is not None and sum(sum(small[folder].values()) for folder, _ in folders) > most_bytes:
        return None
    name = f"{flushes.first:08d}-{flushes.last:08d}"
    try:
        for folder, chunks in folders:
            mask = pc.is_in(done.rows["chunk"].combine_chunks(), value_set=texts(chunks))
            positions = numpy_of(pc.indices_nonzero(mask))
            copy = _Copy(storage, rows, positions, worker, f"{folder}/{name}", codec)
            try:
                copy.run()
            finally:
                done.new += copy.published
            done.rows = _moved(done.rows, mask, copy.columns())
            done.merged += chunks
    except BaseException:
        discard(storage, done.new)
        raise
    return done


def discard(storage: Storage, chunks: Sequence[str]) -> None:
    """Delete new chunks that no index file will name."""
    for chunk in chunks:
        storage.remove(chunk)


def flush_range_of_merged(path: str) -> FlushRange | None:
    """Return the flushes of a merged chunk, by its name; None for a chunk that a writer published."""
    first, _, rest = path.rpartition("/")[2].partition("-")
    last, _, token = rest.partition(".")
    if not (first.isdecimal() and last.isdecimal() and token.endswith(".parquet")):
        return None
    return FlushRange(int(first), int(last))


def _moved(rows: pa.Table, mask: pa.Array, columns: Sequence[pa.Array]) -> pa.Table:
    for name, replacements in zip(_LOCATION, columns, strict=True):
        column = pc.replace_with_mask(rows[name].combine_chunks(), mask, replacements)
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)
    return rows


def _small_chunks(storage: Storage, rows: pa.Table, worker: str, damaged: Collection[str]) -> dict[str, dict[str, int]]:
    """Return the sizes of the small chunks that hold only values of the rows' flushes, by folder and by chunk."""
    raw = rows.select(["chunk", "parts"]).filter(rows["chunk"].is_valid())
    named = raw["chunk"].combine_chunks().dictionary_encode()
    counts = np.bincount(numpy_of(named.indices), numpy_of(raw["parts"].combine_chunks()))
    rows_of = dict(zip(named.dictionary.to_pylist(), counts.tolist(), strict=True))
    steps = set(rows["global_step"].unique().to_pylist())
    # A forged index might name any file.
    chunks = [chunk for chunk in rows_of if chunk not in damaged and is_chunk_of(chunk, worker)]
    found: dict[str, dict[str, int]] = {}
    for chunk, end in zip(chunks, read_ends(storage, chunks), strict=True):
        try:
            if isinstance(end, Exception):
                raise end
            if end[1] >= _LARGE_BYTES:
                continue
            read_seal(chunk, *end)
            # Values of a step that was still open when the chunk was published belong to a later flush.
            if num_rows(footer_of(end[0])) == rows_of[chunk] or _steps_of(storage, chunk) <= steps:
                found.setdefault(folder_of(chunk), {})[chunk] = end[1]
        except FileError:
            raise
        except FileNotFoundError as exc:
            raise MissingChunk(chunk, "the index names this chunk, but it is missing") from exc
        except (pa.ArrowException, OSError, KeyError, ValueError) as exc:
            raise CorruptFile(chunk, f"this chunk cannot be read: {exc}") from exc
    return found


def _steps_of(storage: Storage, chunk: str) -> set[int]:
    column = ChunkFile(storage, chunk).parquet().read(["global_step"])["global_step"]
    return set(column.unique().to_pylist())


class _Copy:
    """A copy of the values of some rows into new chunks."""

    def __init__(
        self, storage: Storage, rows: pa.Table, positions: Numbers, worker: str, stem: str, codec: str
    ) -> None:
        self._storage = storage
        self._rows = rows.select(_SAVED)
        self._worker, self._stem, self._codec = worker, stem, codec
        self._order = positions[_tiled(self._rows.take(numbers(positions, pa.int64())))]
        self._specs: dict[tuple[Any, ...], TensorSpec] = {}
        self._steps: dict[tuple[Any, ...], Step] = {}
        self._writer: tuple[str, ChunkWriter] | None = None
        self._spans: list[tuple[str, ValueSpan]] = []
        self.published: list[str] = []

    def run(self) -> None:
        try:
            for batch in _batches(_numbers_of(self._rows, "nbytes")[self._order]):
                taken = self._rows.take(numbers(self._order[batch], pa.int64()))
                rows = [SavedTensor(**row) for row in taken.to_pylist()]
                # A value that was damaged in memory or on disk must not be copied, nor its chunk deleted.
                for row, data in zip(rows, read_bytes(self._storage, rows), strict=True):
                    check_digests([row], np.frombuffer(data, np.uint8)[None])
                    self._append(row, data)
            self._finish()
        finally:
            if self._writer is not None:
                self._writer[1].abort()

    def columns(self) -> list[pa.Array]:
        """Return the columns of the index with the new locations of the values, in the order of the rows."""
        back = np.argsort(self._order)
        found = [self._spans[position] for position in back.tolist()]
        return [
            texts([chunk for chunk, _ in found]),
            *(
                column([getattr(span, name) for _, span in found], INDEX_SCHEMA.field(name).type)
                for name in _LOCATION[1:]
            ),
        ]

    def _append(self, row: SavedTensor, data: memoryview) -> None:
        if self._writer is None:
            path = f"{self._stem}.{secrets.token_hex(4)}.parquet"
            sink = self._storage.sink(path)
            writer = ChunkWriter(sink, path, self._worker, self._codec, compressed_bytes=_COMPRESSED_ROW_GROUP_BYTES)
            self._writer = path, writer
        path, writer = self._writer
        self._spans.append((path, writer.append_bytes(self._step(row), self._spec(row), data)))
        if writer.nbytes >= _MOST_BYTES:
            self._finish()

    def _step(self, row: SavedTensor) -> Step:
        # A worker may have saved a global step again as another step of the mode.
        key = row.mode, row.mode_step, row.global_step
        if key not in self._steps:
            self._steps[key] = Step(ModeKeys[row.mode], row.mode_step, row.global_step)
        return self._steps[key]

    def _spec(self, row: SavedTensor) -> TensorSpec:
        key = row.name, row.dtype, tuple(row.shape), row.nbytes
        if key not in self._specs:
            name, dtype, shape, nbytes = key
            self._specs[key] = TensorSpec(Plan(name, (), True), dtype, shape, nbytes)
        return self._specs[key]

    def _finish(self) -> None:
        if self._writer is None:
            return
        path, writer = self._writer
        writer.finish()
        writer.publish()
        self._writer = None
        self.published.append(path)
        self._storage.sync(path)


def _tiled(rows: pa.Table) -> Numbers:
    """Return the order of rows in tiles of steps, in each of them by name and then by step."""
    steps, of_step = np.unique(_numbers_of(rows, "global_step"), return_inverse=True)
    sizes = np.bincount(of_step, _numbers_of(rows, "nbytes"), len(steps))
    tiles = (np.cumsum(sizes) - sizes) // _TILE_BYTES
    names = rows["name"].combine_chunks().dictionary_encode()
    rank = np.argsort(np.argsort(np.array(names.dictionary.to_pylist(), object)))
    return np.lexsort((of_step, rank[numpy_of(names.indices)], tiles[of_step]))


def _numbers_of(rows: pa.Table, name: str) -> Numbers:
    return numpy_of(rows[name].combine_chunks())


def _batches(sizes: Numbers) -> Iterator[slice]:
    """Yield consecutive rows that are read together, of sizes that add up to about _BATCH_BYTES."""
    number = np.cumsum(sizes) // _BATCH_BYTES
    begins = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
    for begin, end in zip(begins, [*begins[1:], len(sizes)], strict=True):
        yield slice(begin, end)
