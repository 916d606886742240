"""TFRecord: a file of records, each framed by its length and checksums.

    uint64 length    uint32 checksum of these 8 bytes    length bytes    uint32 checksum of the bytes

All little-endian. A checksum is a masked CRC-32C: rotated right by 15 bits, plus a constant.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

_HEADER = 12
_FOOTER = 4
BLOCK = 8 << 20
"""So much is read at once; a longer record by itself."""
_LONGEST = 1 << 31
"""No protobuf message is longer: a length above it is garbage, however well it checks."""
_UNCHECKED = 0x062DC0B3
"""smdebug writes this after every record, whatever the record is."""
_CHEAP = 64 << 10
"""Without a library a checksum takes 0.1 s a megabyte. Longer records are known by their framing only."""

Read = Callable[[int, int], "bytes | bytearray"]
"""The bytes from a position on, so many or fewer where the file ends."""


class TornRecord(ValueError):
    """A record that is not whole, or not what was written."""


def records(read: Read, resume_at: Sequence[int] = ()) -> Iterator[tuple[int, memoryview | TornRecord]]:
    """Each record of a file with the position where its frame begins; in the place of a bad one, what is wrong with it.

    After a bad record its length cannot be trusted, so the next one is looked for at the next of `resume_at`, the
    ascending positions that somebody else knows of; without one, the file ends there. A record is valid until the next
    one is asked for.
    """
    position, block = 0, _Block(read)
    while view := block.at(position, _HEADER):
        try:
            length = _length(view)
            yield position, _payload(block.at(position, _HEADER + length + _FOOTER), length)
        except TornRecord as torn:
            yield position, torn
            later = bisect_right(resume_at, position)
            if later == len(resume_at):
                return
            position = resume_at[later]
        else:
            position += _HEADER + length + _FOOTER


class _Block:
    """The part of the file that was read last."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._start, self._data, self._is_last = 0, memoryview(b""), False

    def at(self, position: int, length: int) -> memoryview:
        """What lies at `position`: at least `length` bytes, unless the file ends before."""
        behind = self._start + len(self._data) - position
        if behind < length and not self._is_last:
            asked = max(length, BLOCK)
            self._start, self._data = position, memoryview(self._read(position, asked))
            self._is_last = len(self._data) < asked
        return self._data[position - self._start :]


def _length(view: memoryview) -> int:
    if len(view) < _HEADER:
        raise TornRecord("the file ends within the header of a record")
    if masked_crc32c(view[:8]) != int.from_bytes(view[8:_HEADER], "little"):
        raise TornRecord("the length of a record does not match its checksum")
    length = int.from_bytes(view[:8], "little")
    if length > _LONGEST:
        raise TornRecord(f"a record claims to have {length} bytes")
    return length


def _payload(view: memoryview, length: int) -> memoryview:
    end = _HEADER + length
    if len(view) < end + _FOOTER:
        raise TornRecord(f"the file ends within a record of {length} bytes")
    payload, checksum = view[_HEADER:end], int.from_bytes(view[end : end + _FOOTER], "little")
    if checksum != _UNCHECKED and length <= _CHEAP and checksum != masked_crc32c(payload):
        raise TornRecord(f"a record of {length} bytes does not match its checksum")
    return payload


def masked_crc32c(data: bytes | memoryview) -> int:
    """The checksum as TFRecord stores it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = [_entry(byte) for byte in range(256)]
