"""Generators of batches of rows for a target: they join small batches, and prepare them ahead in a thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

_T = TypeVar("_T")
ROWS = 1 << 17
"""The number of rows that are written at once, if there are enough."""
_BYTES = 128 << 20
"""The most bytes that are joined, because raw values may be large."""


def gathered(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of many small batches in few large tables."""
    held: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        nbytes += batch.nbytes
        if rows >= ROWS or nbytes >= _BYTES:
            yield pa.Table.from_batches(held, schema)
            held, rows, nbytes = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, schema)


def ahead(items: Iterable[_T]) -> Iterator[_T]:
    """Yield the items. Each is produced in a thread while the consumer uses the previous one."""
    end = object()
    source = iter(items)
    with ThreadPoolExecutor(1) as thread:
        try:
            coming = thread.submit(next, source, end)
        except RuntimeError:  # no thread can be started
            yield from source
            return
        while (item := coming.result()) is not end:
            coming = thread.submit(next, source, end)
            yield item  # type: ignore[misc]
