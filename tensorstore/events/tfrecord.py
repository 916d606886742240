"""TFRecord: a file of records, each framed by its length and checksums.

    uint64 length    uint32 checksum of these 8 bytes    length bytes    uint32 checksum of the bytes

All little-endian. A checksum is a masked CRC-32C.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from .crc32c import Positions, Words, masked_crc32cs

_HEADER = 12
_FOOTER = 4
BLOCK = 8 << 20
"""So much is read at once; a longer record by itself."""
_LONGEST = 1 << 31
"""No protobuf message is longer: a length above it is garbage, however well it checks."""
_UNCHECKED = 0x062DC0B3
"""smdebug writes this after every record, whatever the record is."""
_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")

Read = Callable[[int, int], "bytes | bytearray"]
"""The bytes from a position on, so many or fewer where the file ends."""


class TornRecord(ValueError):
    """A record that is not whole, or not what was written."""


def framed(contents: Sequence[bytes]) -> bytes:
    """The records with these contents, as they follow each other in a file."""
    lengths = np.array([len(content) for content in contents], np.int64)
    headers = lengths.astype("<u8").tobytes()
    of_lengths = masked_crc32cs(
        np.frombuffer(headers, np.uint8), np.arange(len(contents)) * 8, np.full(len(contents), 8)
    )
    data = np.frombuffer(b"".join(contents), np.uint8)
    of_contents = masked_crc32cs(data, np.cumsum(lengths) - lengths, lengths)
    parts = []
    for number, (content, of_length, of_content) in enumerate(
        zip(contents, of_lengths.tolist(), of_contents.tolist(), strict=True)
    ):
        parts += [headers[8 * number : 8 * number + 8], _CHECKSUM.pack(of_length), content, _CHECKSUM.pack(of_content)]
    return b"".join(parts)


def records(read: Read, resume_at: Sequence[int] = ()) -> Iterator[tuple[int, memoryview | TornRecord]]:
    """Each record of a file with the position where its frame begins; in the place of a bad one, what is wrong with it.

    After a length that cannot be trusted the next record is looked for at the next of `resume_at`, the ascending
    positions that somebody else knows of; without one, the file ends there. A record is valid until the next one is
    asked for.
    """
    position = wanted = 0
    while True:
        asked = max(wanted, BLOCK)
        block = _Block(read(position, asked))
        for start, record in block.whole():
            yield position + start, record
        end = position + block.end
        torn = block.torn(is_last=len(block.view) < asked)
        if torn is not None:
            yield end, torn
            later = bisect_right(resume_at, end)
            if later == len(resume_at):
                return
            position, wanted = resume_at[later], 0
        elif len(block.view) < asked:
            return
        else:
            position, wanted = end, block.next_size


class _Block:
    """A part of the file that begins with a frame. Lengths are followed first, and checked all at once after."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.view = memoryview(data)
        starts, self._lengths = self._follow()
        self._starts = np.array(starts, np.int64)
        self._data = np.frombuffer(data, np.uint8)
        good = self._match(self._starts, np.full(len(starts), 8))
        bad = np.flatnonzero(~good)
        count = int(bad[0]) if len(bad) else len(starts)
        self._whole = count - (count == len(starts) and count > 0 and self._end_of(count - 1) > len(data))
        """So many frames can be trusted and are here to their ends."""
        self.end = self._end_of(self._whole - 1) if self._whole else 0
        """Where the first frame begins that is not one of them."""
        self._length_is_good = self._whole < count

    def _follow(self) -> tuple[list[int], list[int]]:
        """Where frames begin, and how long their contents say that they are; only the last may not end here."""
        view, position, size = self.view, 0, len(self.view)
        starts, lengths = [], []
        while position + _HEADER <= size:
            (length,) = _LENGTH.unpack_from(view, position)
            starts.append(position)
            lengths.append(length)
            position += _HEADER + length + _FOOTER
        return starts, lengths

    def _end_of(self, number: int) -> int:
        return int(self._starts[number]) + _HEADER + self._lengths[number] + _FOOTER

    def _match(self, starts: Positions, lengths: Positions) -> npt.NDArray[np.bool_]:
        """Whether what lies at each start has the checksum that follows it."""
        matches: npt.NDArray[np.bool_] = masked_crc32cs(self._data, starts, lengths) == self._stored(starts + lengths)
        return matches

    def _stored(self, positions: Positions) -> Words:
        stored: Words = self._data[positions[:, None] + np.arange(4)].view("<u4")[:, 0]
        return stored

    def whole(self) -> Iterator[tuple[int, memoryview | TornRecord]]:
        """The records that are here to their ends. One that is not what was written harms no other: its length is."""
        starts, lengths = self._starts[: self._whole] + _HEADER, np.array(self._lengths[: self._whole], np.int64)
        good = self._match(starts, lengths) | (self._stored(starts + lengths) == _UNCHECKED)
        for start, length, is_good in zip(starts.tolist(), lengths.tolist(), good.tolist(), strict=True):
            if is_good:
                yield start - _HEADER, self.view[start : start + length]
            else:
                yield start - _HEADER, TornRecord(f"a record of {length} bytes does not match its checksum")

    @property
    def next_size(self) -> int:
        """How long the frame at `end` is; 0 if that is not known."""
        return _HEADER + self._lengths[self._whole] + _FOOTER if self._length_is_good else 0

    def torn(self, is_last: bool) -> TornRecord | None:
        """What is wrong at `end`, if anything is."""
        left = len(self.view) - self.end
        if left >= _HEADER and not self._length_is_good:
            return TornRecord("the length of a record does not match its checksum")
        if self.next_size > _LONGEST:
            return TornRecord(f"a record claims to have {self._lengths[self._whole]} bytes")
        if is_last and left:
            length = self._lengths[self._whole] if self._length_is_good else None
            what = "the header of a record" if length is None else f"a record of {length} bytes"
            return TornRecord(f"the file ends within {what}")
        return None
