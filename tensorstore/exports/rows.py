"""The reader of raw values in a run's chunks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from ..errors import CorruptFile
from ..format.chunk_reader import ChunkFile
from ..format.schema import TENSORS_SCHEMA
from ..read.counting_rows import ValueLocation, starts_of_row_groups
from ..storage.open import Storage


def value_rows(storage: Storage, chunk: str, wanted: Iterable[ValueLocation]) -> Iterator[pa.Table]:
    """Yield the rows of a chunk at these locations, one row group at a time.

    Raises:
        CorruptFile: The values cannot be read.
        FileNotFoundError: The chunk is missing.
    """
    try:
        file = ChunkFile(storage, chunk)
        reader = file.parquet()
        starts = starts_of_row_groups(storage, chunk)
        rows = sorted({row for at in wanted for row in at.rows(starts)})
        for group, inside in groupby(rows, lambda row: bisect_right(starts, row) - 1):
            file.fetch(reader.metadata, group, TENSORS_SCHEMA.names)
            table: Any = reader.read_row_group(group, columns=TENSORS_SCHEMA.names, use_threads=False)
            taken = table.take(pa.array([row - starts[group] for row in inside], pa.int64()))
            yield taken.select(TENSORS_SCHEMA.names).cast(TENSORS_SCHEMA)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as exc:
        raise CorruptFile(chunk, f"its values cannot be read: {exc}") from exc
