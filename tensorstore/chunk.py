"""A chunk: one Parquet file of raw values in which every value is a byte range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .dtypes import to_bytes
from .parquet import Cells, Column, ParquetWriter, distinct
from .records import Kind, Record, Step
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


class _RowGroup:
    """The rows of the next row group, column by column."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self.data: list[memoryview] = []
        self.parts: list[int] = []
        self.places: list[Place] = []
        self.steps: list[Step] = []
        """Each step once for all rows that come one after another."""
        self.records: list[Record] = []
        """Those that end with this row group: their memory is then free."""
        self.counts: list[int] = []
        self.nbytes = 0

    def add(self, step: Step, kind: Kind, part: int, data: memoryview, place: Place) -> None:
        self.kinds.append(kind)
        self.data.append(data)
        self.parts.append(part)
        self.places.append(place)
        self.nbytes += len(data)
        if self.steps and self.steps[-1] is step:
            self.counts[-1] += 1
        else:
            self.steps.append(step)
            self.counts.append(1)

    def cells(self, worker: str) -> list[Cells]:
        """All columns but the values."""
        kinds, places = distinct(self.kinds)
        steps = np.repeat(np.arange(len(self.steps)), self.counts)
        return [
            Cells.of([kind.plan.name for kind in kinds]).by(places),
            Cells.of([step.mode.name for step in self.steps]).by(steps),
            Cells.of([step.mode_step for step in self.steps]).by(steps),
            Cells.of([step.global_step for step in self.steps]).by(steps),
            Cells([worker], np.zeros(len(places), np.intp)),
            Cells.of([kind.dtype for kind in kinds]).by(places),
            Cells.of([kind.shape for kind in kinds]).by(places),
            Cells.of(self.parts),
        ]


class ChunkWriter:
    """Appends values to a chunk until it is finished."""

    def __init__(
        self,
        sink: Sink,
        path: str,
        worker: str,
        codec: str = "none",
        part_bytes: int = PART_BYTES,
        compressed_bytes: int = COMPRESSED_ROW_GROUP_BYTES,
    ) -> None:
        self._sink = sink
        self._path = path
        self._worker = worker
        self._part_bytes = part_bytes
        self._parquet = ParquetWriter(sink.file, _COLUMNS, codec)
        self._row_group_bytes = ROW_GROUP_BYTES if codec == "none" else compressed_bytes
        self._row_groups = 0
        self._pending = _RowGroup()
        self.nbytes = 0

    def append(self, step: Step, record: Record, kind: Kind) -> Place:
        """Add the array of `record`; the place is complete when the chunk is finished."""
        assert isinstance(record.value, np.ndarray)
        place = self.append_bytes(step, kind, to_bytes(record.value))
        if self._pending.kinds:
            self._pending.records.append(record)
        else:
            record.release()
        return place

    def append_bytes(self, step: Step, kind: Kind, data: memoryview) -> Place:
        """Add a value as it is stored. Its memory is read until the chunk is finished."""
        self.nbytes += len(data)
        count = max(1, -(-len(data) // self._part_bytes))
        place = Place(-1, -1, count, len(data))
        if count == 1:
            self._add(step, kind, 0, data, place)
        else:
            for part in range(count):
                self._add(step, kind, part, data[part * self._part_bytes : (part + 1) * self._part_bytes], place)
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

    def _add(self, step: Step, kind: Kind, part: int, data: memoryview, place: Place) -> None:
        pending = self._pending
        if pending.kinds and pending.nbytes + len(data) > self._row_group_bytes:
            self._write_row_group()
            pending = self._pending
        if part == 0:
            place.row_group, place.row = self._row_groups, len(pending.kinds)
        pending.add(step, kind, part, data, place)
        if pending.nbytes >= self._row_group_bytes or len(pending.kinds) >= ROW_GROUP_ROWS:
            self._write_row_group()

    def _write_row_group(self) -> None:
        pending = self._pending
        if not pending.kinds:
            return
        with translated(self._path, "write"):
            positions = self._parquet.write_row_group(pending.cells(self._worker), pending.data)
        if positions is not None:
            for place, part, position in zip(pending.places, pending.parts, positions, strict=True):
                if part == 0:
                    place.offset = position
        self._row_groups += 1
        for record in pending.records:
            record.release()
        self._pending = _RowGroup()
