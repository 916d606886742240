"""The rows of a run's files, some at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import pyarrow as pa

from ..errors import CorruptFile
from ..format.chunk_reader import ChunkFile
from ..format.footer import read_footer, row_groups
from ..format.index_reader import read_batches
from ..format.schema import INDEX_SCHEMA, TENSORS_SCHEMA, is_chunk_path
from ..format.verified_files import verified_files
from ..storage.open import Storage
from .tables import encoded


def index_rows(storage: Storage, path: str, columns: Sequence[str] = tuple(INDEX_SCHEMA.names)) -> Iterator[pa.Table]:
    """Yield the rows of an index file, texts as dictionaries. Raises CorruptFile, and FileNotFoundError."""
    return read_batches(path, storage.read(path), encoded(pa.schema([INDEX_SCHEMA.field(name) for name in columns])))


class ValueLocation(NamedTuple):
    """Where a raw value is: `parts` rows of a chunk, from one of a row group on."""

    global_step: int
    chunk: str
    row_group: int
    row: int
    parts: int


def value_locations(path: str, rows: pa.Table) -> Iterator[ValueLocation]:
    """Yield the locations of the raw values that rows of the index file `path` name.

    A chunk may hold those of unfinished steps. `rows` have the columns of `ValueLocation`.

    Raises:
        CorruptFile: A row names what is no chunk.
    """
    for row in rows.filter(rows["chunk"].is_valid()).to_pylist():
        if not is_chunk_path(row["chunk"]):
            raise CorruptFile(path, f"{row['chunk']!r} is no path of a chunk")
        yield ValueLocation(**row)


def _rows_at(at: ValueLocation, starts: Sequence[int]) -> range:
    """Return the rows of the chunk. `starts` is the first row of each row group, and the number of all rows."""
    if not (0 <= at.row_group < len(starts) - 1 and at.row >= 0 and 0 < at.parts <= starts[-1]):
        raise ValueError(f"it does not have the rows of {at}")
    first = starts[at.row_group] + at.row
    return range(first, first + at.parts)


def value_rows(storage: Storage, chunk: str, wanted: Iterable[ValueLocation]) -> Iterator[pa.Table]:
    """Yield the rows of a chunk at these locations, one row group at a time.

    Raises:
        CorruptFile: The values cannot be read.
        FileNotFoundError: The chunk is missing.
    """
    try:
        file = ChunkFile(storage, chunk)
        reader = file.parquet()
        groups = row_groups(read_footer(verified_files(storage), chunk, storage.size(chunk)))
        starts = list(accumulate((group.rows for group in groups), initial=0))
        rows = sorted({row for at in wanted for row in _rows_at(at, starts)})
        for group, inside in groupby(rows, lambda row: bisect_right(starts, row) - 1):
            file.fetch(reader.metadata, group, TENSORS_SCHEMA.names)
            table: Any = reader.read_row_group(group, columns=TENSORS_SCHEMA.names, use_threads=False)
            taken = table.take(pa.array([row - starts[group] for row in inside], pa.int64()))
            yield taken.select(TENSORS_SCHEMA.names).cast(TENSORS_SCHEMA)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as exc:
        raise CorruptFile(chunk, f"its values cannot be read: {exc}") from exc
