"""Writes small Parquet files of a run, with a checksum of each page and a seal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..storage.open import Sink
from .checksum import sealed


@contextmanager
def sealed_parquet(sink: Sink, schema: pa.Schema, **options: Any) -> Iterator[pq.ParquetWriter]:
    """Write a Parquet file into a sink, which is not published yet.

    The file is put together in memory: its seal stands before its footer and has a checksum of it.

    Args:
        sink: Where the file will be.
        schema: The columns.
        options: What pyarrow's ParquetWriter takes.

    Yields:
        The writer of the rows.
    """
    file = pa.BufferOutputStream()
    with pq.ParquetWriter(file, schema, write_page_checksum=True, **options) as writer:
        yield writer
    sink.append(sealed(sink.path, memoryview(file.getvalue())))
