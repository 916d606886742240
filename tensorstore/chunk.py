"""A chunk: one Parquet file of raw values in which every value is a byte range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .dtypes import to_bytes
from .records import Record, Step
from .schema import TENSORS_SCHEMA
from .storage import Sink

ROW_GROUP_BYTES = 4 << 20
# A page of pyarrow's holds 20,000 rows unless told otherwise; the offset formula needs one page a row group.
ROW_GROUP_ROWS = 10_000
# Parquet's own limit for one value is 2 GB.
PART_BYTES = 1 << 30

_LENGTH_PREFIX = 4
_VALUE_COLUMN = TENSORS_SCHEMA.get_field_index("value")


@dataclass(slots=True)
class Place:
    """Where a value lies in its chunk. `offset` is known once the chunk is finished."""

    row_group: int
    row: int
    parts: int
    nbytes: int
    offset: int | None = None


@dataclass(slots=True)
class _Value:
    record: Record
    step: Step
    dtype: str
    shape: tuple[int, ...]
    part: int
    data: memoryview
    place: Place


@dataclass(frozen=True, slots=True)
class _Row:
    place: Place
    part: int
    nbytes: int


class ChunkWriter:
    """Appends values to a chunk until it is finished."""

    def __init__(self, sink: Sink, worker: str, codec: str = "none", part_bytes: int = PART_BYTES) -> None:
        self._sink = sink
        self._worker = worker
        self._compressed = codec != "none"
        self._part_bytes = part_bytes
        self._pending: list[_Value] = []
        self._pending_bytes = 0
        self._row_groups: list[list[_Row]] = []
        self.nbytes = 0
        self._parquet = pq.ParquetWriter(
            sink.file,
            TENSORS_SCHEMA,
            compression=codec,
            use_dictionary=["name", "mode", "worker", "dtype"],
            write_statistics=["name", "mode_step", "global_step"],
            data_page_size=1 << 30,
            data_page_version="1.0",
            write_batch_size=ROW_GROUP_ROWS,
            store_schema=False,
        )

    def append(self, step: Step, record: Record, dtype: str) -> Place:
        """Add the array of `record`; the place is complete when the chunk is finished."""
        array = record.value
        assert isinstance(array, np.ndarray)
        data = to_bytes(array)
        count = max(1, -(-len(data) // self._part_bytes))
        place = Place(-1, -1, count, len(data))
        for part in range(count):
            piece = data[part * self._part_bytes : (part + 1) * self._part_bytes]
            self._add(_Value(record, step, dtype, array.shape, part, piece, place))
        self.nbytes += len(data)
        return place

    def finish(self) -> None:
        """Write the footer and fill in the offsets. The chunk is not published yet."""
        self._write_row_group()
        self._parquet.close()
        if not self._compressed:
            metadata = self._parquet.writer.metadata
            for number, rows in enumerate(self._row_groups):
                _fill_offsets(metadata.row_group(number).column(_VALUE_COLUMN), rows)
        self._row_groups.clear()

    def publish(self) -> None:
        self._sink.publish()

    def abort(self) -> None:
        self._sink.abort()

    def _add(self, value: _Value) -> None:
        if self._pending and self._pending_bytes + len(value.data) > ROW_GROUP_BYTES:
            self._write_row_group()
        if value.part == 0:
            value.place.row_group, value.place.row = len(self._row_groups), len(self._pending)
        self._pending.append(value)
        self._pending_bytes += len(value.data)
        if self._pending_bytes >= ROW_GROUP_BYTES or len(self._pending) >= ROW_GROUP_ROWS:
            self._write_row_group()

    def _write_row_group(self) -> None:
        values = self._pending
        if not values:
            return
        self._parquet.write_batch(_batch(values, self._worker), row_group_size=len(values))
        # The bytes are written and may go; the offsets need their lengths only.
        self._row_groups.append([_Row(value.place, value.part, len(value.data)) for value in values])
        self._pending, self._pending_bytes = [], 0


def _batch(values: Sequence[_Value], worker: str) -> pa.RecordBatch:
    count = len(values)
    columns = [
        pa.array([v.record.plan.name for v in values], pa.string()),
        pa.array([v.step.mode.name for v in values], pa.string()),
        pa.array([v.step.mode_step for v in values], pa.int64()),
        pa.array([v.step.global_step for v in values], pa.int64()),
        pa.array([worker] * count, pa.string()),
        pa.array([v.dtype for v in values], pa.string()),
        pa.array([v.shape for v in values], pa.list_(pa.int64())),
        pa.array([v.part for v in values], pa.int32()),
        _binary([v.data for v in values]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=TENSORS_SCHEMA)


def _binary(values: Sequence[memoryview]) -> pa.Array:
    """A binary column. One value stays where it is: pa.array would copy it, and large values come one a row group."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    data = pa.py_buffer(values[0] if len(values) == 1 else b"".join(values))
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), data])


def _fill_offsets(column: pq.ColumnChunkMetaData, rows: Sequence[_Row]) -> None:
    """value i starts at data_page_offset + total_compressed_size - sum(4 + n_j, all j) + sum(4 + n_j, j < i) + 4."""
    end = column.data_page_offset + column.total_compressed_size
    position = end - sum(_LENGTH_PREFIX + row.nbytes for row in rows)
    for row in rows:
        if row.part == 0:
            row.place.offset = position + _LENGTH_PREFIX
        position += _LENGTH_PREFIX + row.nbytes
