"""Writes chunks: Parquet files of raw values in which every value is a byte range."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ..dtypes import to_bytes
from ..statistics.digest import PassingDigest
from ..storage.open import Sink, translated
from .parquet_writer import Cells, Column, ParquetWriter, Positions, distinct
from .record import Record, Step, TensorSpec, ValueBatch
from .schema import TENSORS_SCHEMA

# The memory of values is used again once their row group has been written. A compressed value is read by decoding its
# whole row group.
ROW_GROUP_BYTES = 16 << 20
COMPRESSED_ROW_GROUP_BYTES = 4 << 20
ROW_GROUP_ROWS = 10_000
# Larger values are split into parts: Parquet's own limit for one value is 2 GB.
PART_BYTES = 1 << 30
# A part is read and decoded as a whole, and its value is in memory too.
_SPLIT_BYTES = 128 << 20
# A compressed one takes its size in memory several times.
_COMPRESSED_PART_BYTES = 32 << 20

_Pieces: TypeAlias = Callable[[int, int], Iterable[memoryview]]
_KINDS = {pa.string(): str, pa.int64(): int, pa.int32(): int, pa.list_(pa.int64()): tuple, pa.binary(): bytes}
_COLUMNS = [Column(field.name, _KINDS[field.type], 32 if field.type == pa.int32() else 64) for field in TENSORS_SCHEMA]


@dataclass(slots=True)
class ValueSpan:
    """The location of values in their chunk: consecutive rows of one row group, or one value in several parts."""

    row_group: int
    row: int
    """The row of the first value."""
    count: int = 1
    parts: int = 1
    """The number of consecutive rows that one value takes; they may continue in the next row groups."""
    offsets: Positions | None = None
    """The byte offset of each value in the file; known once it is written, None for compressed values."""

    @property
    def offset(self) -> int | None:
        """Return the byte offset of the first value."""
        return None if self.offsets is None else int(self.offsets[0])


class _RowGroup:
    """The rows of the next row group, column by column."""

    def __init__(self) -> None:
        self.specs: list[TensorSpec] = []
        self.parts: list[int] = []
        self.sizes: list[int] = []
        self.page: list[Iterable[bytes | memoryview]] = []
        self.steps: list[Step] = []
        """Each step once for all its consecutive rows, whose number is in `counts`."""
        self.counts: list[int] = []
        self.spans: list[ValueSpan] = []
        """The spans that begin in this row group."""
        self.batches: list[ValueBatch] = []
        """The batches in whose buffers the page lies: these must not be used again before the page is written."""
        self.read: list[Record] = []
        """The records whose last bytes are in this row group. Once it is written, their memory can be released."""
        self.nbytes = 0

    def add(self, step: Step, specs: Sequence[TensorSpec], part: int, sizes: Sequence[int], nbytes: int) -> None:
        """Add rows, whose `nbytes` of values are in the page."""
        self.specs += specs
        self.parts += [part] * len(specs)
        self.sizes += sizes
        self.nbytes += nbytes
        if self.steps and self.steps[-1] is step:
            self.counts[-1] += len(specs)
        else:
            self.steps.append(step)
            self.counts.append(len(specs))

    def cells(self, worker: str) -> list[Cells]:
        """Return all columns but the values."""
        specs, of_spec = distinct(self.specs)
        steps = np.repeat(np.arange(len(self.steps)), self.counts)
        return [
            Cells.of([spec.plan.name for spec in specs]).by(of_spec),
            Cells.of([step.mode.name for step in self.steps]).by(steps),
            Cells.of([step.mode_step for step in self.steps]).by(steps),
            Cells.of([step.global_step for step in self.steps]).by(steps),
            Cells([worker], np.zeros(len(of_spec), np.intp)),
            Cells.of([spec.dtype for spec in specs]).by(of_spec),
            Cells.of([spec.shape for spec in specs]).by(of_spec),
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
        self._part_bytes = part_bytes if codec == "none" else min(part_bytes, _COMPRESSED_PART_BYTES)
        self._parquet = ParquetWriter(sink, path, _COLUMNS, codec)
        self._row_group_bytes = ROW_GROUP_BYTES if codec == "none" else compressed_bytes
        self._row_groups = 0
        self._pending = _RowGroup()
        self.nbytes = 0

    def append(self, step: Step, record: Record, spec: TensorSpec, digests: list[int]) -> ValueSpan:
        """Add the array of `record`. Once the chunk is finished, the span is complete, and `digests` has the digest."""
        assert isinstance(record.value, np.ndarray)
        data = to_bytes(record.value)
        span = self.append_bytes(step, spec, data, PassingDigest(data, spec.digest_header, digests).passing)
        if self._pending.specs:
            self._pending.read.append(record)
        else:
            record.release()
        return span

    def append_bytes(self, step: Step, spec: TensorSpec, data: memoryview, pieces: _Pieces | None = None) -> ValueSpan:
        """Add the stored bytes of a value. They are read, by `pieces` of a range, until the chunk is finished."""
        nbytes = len(data)
        self.nbytes += nbytes
        size = nbytes if nbytes <= self._part_bytes else min(self._part_bytes, _SPLIT_BYTES)
        parts = -(-nbytes // size) if size else 1
        span = None
        for part in range(parts):
            begin, end = part * size, min((part + 1) * size, nbytes)
            self._begin_row_group_for(1, end - begin)
            span = span or self._next_span(1, parts)
            found = pieces(begin, end) if pieces else [data[begin:end]]
            self._pending.page += ([struct.pack("<i", end - begin)], found)
            self._pending.add(step, [spec], part, [end - begin], end - begin)
            self._write_if_full()
        assert span is not None
        return span

    def append_batch(self, step: Step, batch: ValueBatch, digests: list[int]) -> ValueSpan:
        """Add the values of `batch`, which are smaller than a part. Span and digests are complete as for `append`."""
        specs = batch.specs
        self.nbytes += batch.nbytes
        self._begin_row_group_for(len(specs), batch.nbytes)
        span = self._next_span(len(specs))
        self._pending.page.append(batch.page(digests))
        self._pending.batches.append(batch)
        self._pending.add(step, specs, 0, [spec.nbytes for spec in specs], batch.nbytes)
        self._write_if_full()
        return span

    def finish(self) -> None:
        """Write the last row group and the footer. This does not publish the chunk."""
        self._write_row_group()
        with translated(self._path, "write"):
            self._parquet.close()

    def publish(self) -> None:
        self._sink.publish()

    def abort(self) -> None:
        self._sink.abort()

    def _next_span(self, count: int, parts: int = 1) -> ValueSpan:
        """Return the span of the next rows."""
        span = ValueSpan(self._row_groups, len(self._pending.specs), count, parts)
        self._pending.spans.append(span)
        return span

    def _begin_row_group_for(self, rows: int, nbytes: int) -> None:
        """Begin a new row group if the next rows do not fit into this one."""
        pending = self._pending
        if pending.nbytes + nbytes > self._row_group_bytes or len(pending.specs) + rows > ROW_GROUP_ROWS:
            self._write_row_group()

    def _write_if_full(self) -> None:
        if self._pending.nbytes >= self._row_group_bytes or len(self._pending.specs) >= ROW_GROUP_ROWS:
            self._write_row_group()

    def _write_row_group(self) -> None:
        pending = self._pending
        if not pending.specs:
            return
        with translated(self._path, "write"):
            sizes = np.array(pending.sizes, np.int64)
            page = chain.from_iterable(pending.page)
            positions = self._parquet.write_row_group(pending.cells(self._worker), page, sizes)
        if positions is not None:
            for span in pending.spans:
                span.offsets = positions[span.row : span.row + span.count]
        self._row_groups += 1
        pending.page.clear()
        for each in pending.read:
            each.release()
        self._pending = _RowGroup()
