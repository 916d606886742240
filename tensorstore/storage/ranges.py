"""Reads of parts of files in an object store: those that are near each other become one request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .base import ByteRange

_NEAR = 64 << 10
"""Two ranges with no more than this between them are read as one: the bytes cost less than another request."""
_MERGED = 16 << 20
"""But no merged read is longer than this, so that long reads still go in parallel."""


@dataclass(frozen=True, slots=True)
class _Merged:
    """One read, and the places in the caller's list that it serves."""

    span: ByteRange
    serves: list[tuple[int, ByteRange]]

    def cut(self, data: bytes | bytearray) -> Iterator[tuple[int, bytes | bytearray]]:
        """The part of `data` for each place."""
        for place, wanted in self.serves:
            start = wanted.start - self.span.start
            yield place, data if wanted == self.span else data[start : start + wanted.length]


def merge(ranges: Sequence[ByteRange], near: int = _NEAR, longest: int = _MERGED) -> list[_Merged]:
    """The reads that serve `ranges`: those near each other in one file become one. Empty ranges need no read."""
    merged: list[_Merged] = []
    for place, wanted in sorted(enumerate(ranges), key=lambda each: (each[1].path, each[1].start)):
        if not wanted.length:
            continue
        span = _joined(merged[-1].span, wanted, near, longest) if merged else None
        if span is None:
            merged.append(_Merged(wanted, [(place, wanted)]))
        else:
            merged[-1].serves.append((place, wanted))
            merged[-1] = _Merged(span, merged[-1].serves)
    return merged


def _joined(span: ByteRange, wanted: ByteRange, near: int, longest: int) -> ByteRange | None:
    end = max(span.start + span.length, wanted.start + wanted.length)
    close = span.path == wanted.path and wanted.start <= span.start + span.length + near
    return ByteRange(span.path, span.start, end - span.start) if close and end - span.start <= longest else None
