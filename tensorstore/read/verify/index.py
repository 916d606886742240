"""Verifies an index file: its rows against its footer and against each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import CorruptFile
from ...format.arrow_arrays import broadcast, numbers, texts
from ...format.checksum import read_end, read_seal
from ...format.footer import footer_of, row_groups
from ...format.index_reader import LOCATION_COLUMNS, described_groups, read_rows
from ...format.index_types import IndexSummary, SavedTensor, read_summary
from ...format.schema import is_chunk_path
from ...storage.open import Storage
from .report import Findings
from .stream import pieces_of

_LARGE_BYTES = 64 << 20


def check_index_file(
    storage: Storage, worker: str, path: str, findings: Findings
) -> tuple[IndexSummary, pa.Table | None]:
    """Read all of an index file of a worker. Return its summary, and its rows that name a chunk; None if damaged.

    Raise FileNotFoundError if it is missing, for example after a compaction, and FileError if its footer is damaged.
    """
    size = storage.size(path)
    data = storage.read(path) if size <= _LARGE_BYTES else None
    end = read_end(storage, path, size) if data is None else data
    summary = read_summary(path, end, size if data is None else len(data))
    try:
        if data is None:
            # Piece by piece, so that it is read whole only if it is undamaged, and not, say, sparse.
            seal = read_seal(path, end, size)
            for piece in pieces_of(storage, path, 0, seal.nbytes):
                piece.check(seal)
            data = storage.read(path)
        findings.read(path, len(data))
        table = read_rows(path, data)
        _check_rows(worker, path, summary, table)
        _check_groups(path, data, table)
    except CorruptFile as exc:
        findings.damaged(path, exc, worker)
        return summary, None
    raw = table.filter(table["chunk"].is_valid())
    findings.count(path, len(table), len(raw))
    return summary, raw


def _check_rows(worker: str, path: str, summary: IndexSummary, table: pa.Table) -> None:
    if len(table) != summary.rows:
        raise CorruptFile(path, f"it has {len(table)} rows, and its footer says {summary.rows}")
    if not pc.all(pc.equal(table["worker"], worker), min_count=0).as_py():
        raise CorruptFile(path, f"it has rows of another worker than {worker}")
    keys = ["global_step", "name", "mode", "mode_step"]
    saved, said = (each.sort_by([(key, "ascending") for key in keys]) for each in (table.select(keys), _said(summary)))
    if not all(saved[key].combine_chunks().equals(said[key].combine_chunks()) for key in keys):
        raise CorruptFile(path, "its rows are not those of the steps and tensors that its footer names")
    named = set(pc.unique(table["chunk"]).to_pylist()) - {None}
    if named != set(summary.chunks) or not all(map(is_chunk_path, named)):
        raise CorruptFile(path, "its rows name other chunks than its footer")


def _check_groups(path: str, data: bytes, table: pa.Table) -> None:
    """Check the bounds of names and steps in the footer, by which readers skip row groups."""
    try:
        described, begin = described_groups(pq.read_metadata(pa.BufferReader(data))), 0
        if [rows for rows, *_ in described] != (sizes := [group.rows for group in row_groups(footer_of(data))]):
            raise ValueError(f"its row groups have {sizes} rows")
        for rows, *bounds in described:
            group, begin = table.slice(begin, rows), begin + rows
            for name, (least, greatest) in zip(("name", "global_step"), bounds, strict=True):
                found = pc.min_max(group[name]).as_py()
                if not least <= found["min"] <= found["max"] <= greatest:
                    raise ValueError(f"a row group has a {name} outside of {least!r} to {greatest!r}")
    except (LookupError, TypeError, ValueError, RecursionError) as exc:
        raise CorruptFile(path, f"its footer does not describe its row groups: {exc}") from exc


def _said(summary: IndexSummary) -> pa.Table:
    """Return the rows that the footer of an index file describes."""
    names = [[name for name, _ in each] for each in summary.name_sets]
    of_step = np.repeat(np.arange(len(summary.steps)), [len(names[step.name_set]) for step in summary.steps])
    return pa.table(
        {
            "global_step": broadcast(numbers([step.global_step for step in summary.steps], pa.int64()), of_step),
            "name": texts([name for step in summary.steps for name in names[step.name_set]]),
            "mode": broadcast(texts([step.mode for step in summary.steps]), of_step),
            "mode_step": broadcast(numbers([step.mode_step for step in summary.steps], pa.int64()), of_step),
        }
    )


def rows_of(table: pa.Table) -> Iterator[SavedTensor]:
    """Return an iterator over the rows of a table of the index, without statistics."""
    columns = [table[name].to_pylist() for name in LOCATION_COLUMNS]
    return starmap(SavedTensor, zip(*columns, strict=True))
