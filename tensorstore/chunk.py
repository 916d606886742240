"""A chunk: one Parquet file of raw values in which every value is a byte range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .dtypes import to_bytes
from .parquet import Column, ParquetWriter
from .records import Record, Step
from .schema import TENSORS_SCHEMA
from .storage import Sink, translated

# A value that lies there as it is needs no decoding, however large its row group. A compressed one costs its row group.
ROW_GROUP_BYTES = 32 << 20
COMPRESSED_ROW_GROUP_BYTES = 4 << 20
ROW_GROUP_ROWS = 10_000
# Parquet's own limit for one value is 2 GB.
PART_BYTES = 1 << 30

_KINDS = {pa.string(): str, pa.int64(): int, pa.int32(): int, pa.list_(pa.int64()): tuple, pa.binary(): bytes}
_COLUMNS = [Column(field.name, _KINDS[field.type], 32 if field.type == pa.int32() else 64) for field in TENSORS_SCHEMA]


@dataclass(slots=True)
class Place:
    """Where a value lies in its chunk. `offset` is known once the chunk is finished, unless values are compressed."""

    row_group: int
    row: int
    parts: int
    nbytes: int
    offset: int | None = None


class _Value(NamedTuple):
    record: Record
    step: Step
    dtype: str
    shape: tuple[int, ...]
    part: int
    data: memoryview
    place: Place


class ChunkWriter:
    """Appends values to a chunk until it is finished."""

    def __init__(self, sink: Sink, path: str, worker: str, codec: str = "none", part_bytes: int = PART_BYTES) -> None:
        self._sink = sink
        self._path = path
        self._worker = worker
        self._part_bytes = part_bytes
        self._parquet = ParquetWriter(sink.file, _COLUMNS, codec)
        self._row_group_bytes = ROW_GROUP_BYTES if codec == "none" else COMPRESSED_ROW_GROUP_BYTES
        self._row_groups = 0
        self._pending: list[_Value] = []
        self._pending_bytes = 0
        self.nbytes = 0

    def append(self, step: Step, record: Record, dtype: str) -> Place:
        """Add the array of `record`; the place is complete when the chunk is finished."""
        array = record.value
        assert isinstance(array, np.ndarray)
        data = to_bytes(array)
        self.nbytes += len(data)
        if len(data) <= self._part_bytes:
            place = Place(-1, -1, 1, len(data))
            self._add(_Value(record, step, dtype, array.shape, 0, data, place))
            return place
        count = -(-len(data) // self._part_bytes)
        place = Place(-1, -1, count, len(data))
        for part in range(count):
            piece = data[part * self._part_bytes : (part + 1) * self._part_bytes]
            self._add(_Value(record, step, dtype, array.shape, part, piece, place))
        return place

    def finish(self) -> None:
        """Write what is left, and the footer. The chunk is not published yet."""
        self._write_row_group()
        with translated(self._path, "write"):
            self._parquet.close()

    def publish(self) -> None:
        self._sink.publish()

    def abort(self) -> None:
        self._sink.abort()

    def _add(self, value: _Value) -> None:
        if self._pending and self._pending_bytes + len(value.data) > self._row_group_bytes:
            self._write_row_group()
        if value.part == 0:
            value.place.row_group, value.place.row = self._row_groups, len(self._pending)
        self._pending.append(value)
        self._pending_bytes += len(value.data)
        if self._pending_bytes >= self._row_group_bytes or len(self._pending) >= ROW_GROUP_ROWS:
            self._write_row_group()

    def _write_row_group(self) -> None:
        values = self._pending
        if not values:
            return
        cells: list[list[Any]] = [
            [value.record.plan.name for value in values],
            [value.step.mode.name for value in values],
            [value.step.mode_step for value in values],
            [value.step.global_step for value in values],
            [self._worker] * len(values),
            [value.dtype for value in values],
            [value.shape for value in values],
            [value.part for value in values],
        ]
        with translated(self._path, "write"):
            positions = self._parquet.write_row_group(cells, [value.data for value in values])
        if positions is not None:
            for value, position in zip(values, positions, strict=True):
                if value.part == 0:
                    value.place.offset = position
        self._row_groups += 1
        self._pending, self._pending_bytes = [], 0
