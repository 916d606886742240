"""Verifies chunks: every byte, and every raw value that the rows of an index file name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...dtypes import Array
from ...errors import CorruptFile, FileError
from ...format.arrow_arrays import numpy_of
from ...format.checksum import Seal, read_end, read_seal
from ...format.chunk_reader import ChunkFile, pieces, read_values
from ...format.footer import row_groups
from ...format.index_types import SavedTensor
from ...format.verified_files import verified_files
from ...storage.base import ReadableRanges
from ...storage.open import Storage, StoredFile
from .index import rows_of
from .report import Findings
from .stream import FileInMemory, ValueRanges, pieces_of

_KEYS = ["name", "mode", "mode_step", "global_step", "worker", "dtype", "shape"]
_SMALL_BYTES, _SMALL_REMOTE_BYTES = 1 << 20, 64 << 20
"""A chunk of at most this size is read by one request, including the part that is needed before its values."""
_BATCH_BYTES = 16 << 20
"""The number of bytes of values that are read together."""
_BATCH_ROWS = 4096


def check_chunk(storage: Storage, file: StoredFile, rows: pa.Table, findings: Findings) -> None:
    """Read the values of rows that all name one chunk, and record damaged ones.

    Raise FileNotFoundError if the chunk is missing, for example after a compaction.
    """
    chunk = file.path
    is_small = file.nbytes <= (_SMALL_BYTES if storage.is_local else _SMALL_REMOTE_BYTES)
    source = FileInMemory(chunk, storage.read(chunk)) if is_small else storage
    size = source.size(chunk)
    try:
        seal = read_seal(chunk, read_end(source, chunk, size), size)
    except CorruptFile as exc:
        for row in rows_of(rows):
            findings.value_damaged(row, exc)
        findings.read(chunk, size)
        return
    bad = np.zeros(len(rows), bool)
    try:
        bad = _misplaced(rows, _keys(source, chunk), parts=numpy_of(rows["parts"].combine_chunks()))
    except CorruptFile as exc:
        # Values with the right digest at their offset can be read all the same.
        findings.damaged(chunk, exc, rows["worker"][0].as_py())
    for row in rows_of(rows.filter(pa.array(bad))):
        findings.value_damaged(row, "it does not hold this tensor and step at the location in the index")
    rest = _stream(source, chunk, size, seal, rows.filter(pa.array(~bad)), findings)
    # A value that is compressed, has several parts or is damaged is read in the way of `value()`.
    left = rows_of(rest.sort_by([("row_group", "ascending"), ("row", "ascending")]))
    while some := list(islice(left, _BATCH_ROWS)):
        for batch in pieces(some, _BATCH_BYTES):
            _check_values(storage, batch, findings)


def _stream(
    source: FileInMemory | Storage, chunk: str, size: int, seal: Seal, rows: pa.Table, findings: Findings
) -> pa.Table:
    """Read a chunk once, and verify its blocks and values. Return the rows whose values differ from the saved ones."""
    values = ValueRanges(rows, size)
    # If several index files name a chunk, its blocks are verified with the first of them.
    is_first = not findings.was_read(chunk)
    begin, end = (0, seal.nbytes) if is_first else values.extent
    findings.read(chunk, size - end if is_first else 0)
    for piece in pieces_of(source, chunk, begin, end):
        if is_first:
            findings.read(chunk, len(piece.data))
            try:
                piece.check(seal)
            except FileError as exc:
                findings.damaged(chunk, exc)
        values.check(piece)
    proved = np.zeros(len(rows), bool)
    proved[values.rows[values.proved]] = True
    return rows.filter(pa.array(~proved))


def _keys(source: ReadableRanges, chunk: str) -> tuple[pa.Table, list[int]]:
    """Return all columns of a chunk but the values, and the number of rows of each row group."""
    try:
        groups = [group.rows for group in row_groups(verified_files(source).footer(chunk))]
        return ChunkFile(source, chunk).parquet().read(columns=[*_KEYS, "part"], use_threads=False), groups
    except (FileError, FileNotFoundError):
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as exc:
        raise CorruptFile(chunk, f"its rows cannot be read: {exc}") from exc


def _misplaced(rows: pa.Table, keys: tuple[pa.Table, list[int]], parts: Array) -> Array:
    """Return a mask of the index rows that name a location at which the chunk has another tensor, or no tensor."""
    table, groups = keys
    starts = np.concatenate([[0], np.cumsum(groups)])
    group, row = (numpy_of(rows[name].combine_chunks()).astype(np.int64) for name in ("row_group", "row"))
    bad = (group < 0) | (group >= len(groups)) | (row < 0) | (parts < 1)
    position = np.where(bad, 0, starts[np.where(bad, 0, group)] + row)
    bad |= (row >= np.diff(starts)[np.where(bad, 0, group)]) | (position + parts > len(table))
    position[bad] = 0
    if not len(table):
        return np.ones(len(rows), bool)
    found = table.take(pa.array(position))
    for name in _KEYS:
        bad |= _differ(rows[name], found[name])
    return np.asarray(bad | (numpy_of(found["part"].combine_chunks()) != 0))


def _differ(some: pa.ChunkedArray, others: pa.ChunkedArray) -> Array:
    if not pa.types.is_list(some.type):
        return np.asarray(pc.not_equal(some, others).combine_chunks().to_numpy(zero_copy_only=False))
    if some.combine_chunks().equals(others.combine_chunks()):
        return np.zeros(len(some), bool)
    return np.array([one != other for one, other in zip(some.to_pylist(), others.to_pylist(), strict=True)], bool)


def _check_values(storage: Storage, rows: Sequence[SavedTensor], findings: Findings) -> None:
    try:
        read_values(storage, rows)
    except FileNotFoundError:
        raise
    except (FileError, ValueError, OSError) as exc:
        if len(rows) == 1:
            findings.value_damaged(rows[0], exc)
            return
        for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            _check_values(storage, half, findings)
