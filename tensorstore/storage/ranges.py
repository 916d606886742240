"""The grouping of byte ranges into fewer requests: close ranges of a file are fetched together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .base import ByteRange

_NEAR = 64 << 10
"""Ranges with at most this many bytes between them are one request: the bytes cost less than another one."""
_MERGED = 16 << 20
"""The most bytes of a merged request, so that long reads still run in parallel."""
_IN_FLIGHT = 128 << 20
"""The bytes that are read from an object store at once: enough for its network, and little for memory."""


@dataclass(frozen=True, slots=True)
class MergedRead:
    """One read that serves several ranges."""

    span: ByteRange
    serves: list[tuple[int, ByteRange]]
    """The ranges, each with its index in the caller's list."""

    def cut(self, data: bytes | bytearray) -> Iterator[tuple[int, bytes | bytearray]]:
        """Yield each range's index and its bytes from `data`, the bytes of the span."""
        for index, wanted in self.serves:
            start = wanted.start - self.span.start
            yield index, data if wanted == self.span else data[start : start + wanted.length]


def merge(ranges: Sequence[ByteRange], near: int = _NEAR, longest: int = _MERGED) -> list[MergedRead]:
    """Return the reads for `ranges`, with close ranges of a file merged. Empty ranges need no read."""
    merged: list[MergedRead] = []
    for index, wanted in sorted(enumerate(ranges), key=lambda each: (each[1].path, each[1].start)):
        if not wanted.length:
            continue
        span = _joined(merged[-1].span, wanted, near, longest) if merged else None
        if span is None:
            merged.append(MergedRead(wanted, [(index, wanted)]))
        else:
            merged[-1].serves.append((index, wanted))
            merged[-1] = MergedRead(span, merged[-1].serves)
    return merged


def batches(ranges: Sequence[ByteRange]) -> Iterator[list[tuple[int, int, ByteRange]]]:
    """Yield pieces of the ranges that are read at once: the index of its range, its offset in that, its byte range."""
    batch, size = list[tuple[int, int, ByteRange]](), 0
    for index, (path, start, length) in enumerate(ranges):
        for offset in range(0, length, _MERGED):
            piece = ByteRange(path, start + offset, min(length - offset, _MERGED))
            if size + piece.length > _IN_FLIGHT:
                yield batch
                batch, size = [], 0
            batch.append((index, offset, piece))
            size += piece.length
    if batch:
        yield batch


def _joined(span: ByteRange, wanted: ByteRange, near: int, longest: int) -> ByteRange | None:
    end = max(span.start + span.length, wanted.start + wanted.length)
    close = span.path == wanted.path and wanted.start <= span.start + span.length + near
    return ByteRange(span.path, span.start, end - span.start) if close and end - span.start <= longest else None
