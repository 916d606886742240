"""TFRecord: a file of records, each framed by its length and checksums.

    uint64 length    uint32 checksum of these 8 bytes    length bytes    uint32 checksum of the bytes

All little-endian. A checksum is a masked CRC-32C.
"""

from __future__ import annotations

import struct
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

with warnings.catch_warnings():
    # Without its C extension it warns at import. It is then slower but correct, and users cannot change it.
    warnings.filterwarnings("ignore", "As the c extension couldn't be imported", RuntimeWarning)
    from google_crc32c import value as crc32c

Words: TypeAlias = npt.NDArray[np.uint32]
Positions: TypeAlias = npt.NDArray[np.int64]

HEADER = 12
"""The size of a frame's part before the content, in bytes."""
_FOOTER = 4
BLOCK = 8 << 20
"""The number of bytes that are read at once. A longer record is read separately."""
_LONGEST = 1 << 31
"""The most bytes of a protobuf message. A larger length is invalid, even if its checksum is correct."""
_FEWEST, _MOST, _LONGEST_CYCLE = 64, 1 << 16, 256
"""The limits of the search for lengths that repeat: fewest records, most records at once, most lengths in a cycle."""
_MASK = 0xA282EAD8
_UNCHECKED = 0x062DC0B3
"""The checksum that smdebug writes for every record."""
_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")

Read = Callable[[int, int], "bytes | bytearray"]
"""Returns the bytes at a position, by position and length; fewer at the end of the file."""


class DamagedRecord(ValueError):
    """A record that is incomplete, or does not match its checksum."""


def framed(contents: Sequence[bytes]) -> bytes:
    """Return the bytes of consecutive records with these contents."""
    parts = []
    for content in contents:
        parts += [header(len(content)), content, _CHECKSUM.pack(masked_crc32c(content))]
    return b"".join(parts)


@lru_cache(maxsize=1024)  # cached, because most records of a file have one of few lengths
def header(nbytes: int) -> bytes:
    """Return the part of a frame before a content of some bytes."""
    length = _LENGTH.pack(nbytes)
    return length + _CHECKSUM.pack(masked_crc32c(length))


def masked_crc32c(data: bytes) -> int:
    """Return the checksum as TFRecord stores it: CRC-32C, rotated right by 15 bits, plus a constant."""
    crc: int = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def records(read: Read, resume_at: Sequence[int] = ()) -> Iterator[tuple[int, memoryview | DamagedRecord]]:
    """Yield the position of each frame of a file, with its record or, for a damaged one, an error.

    Args:
        read: Reads the file.
        resume_at: Ascending positions of frames that are known from elsewhere. After a damaged length, reading
            continues at the next of them; without one, it ends there.
    """
    for block in blocks(read, resume_at):
        for start, length, is_good in zip(
            block.starts.tolist(), block.lengths.tolist(), block.good.tolist(), strict=True
        ):
            yield (
                block.position + start - HEADER,
                block.view[start : start + length] if is_good else checksum_error(length),
            )
        if block.damage is not None:
            yield block.position + block.end, block.damage


def checksum_error(length: int) -> DamagedRecord:
    """Return the error of a complete record that does not match its checksum."""
    return DamagedRecord(f"a record of {length} bytes does not match its checksum")


def blocks(read: Read, resume_at: Sequence[int] = ()) -> Iterator[Block]:
    """Yield the records of a file in blocks, one for each read; see `records`."""
    position = wanted = 0
    while True:
        length = max(wanted, BLOCK)
        block = Block(position, read(position, length), length)
        yield block
        end = position + block.end
        if block.damage is not None:
            later = bisect_right(resume_at, end)
            if later == len(resume_at):
                return
            position, wanted = resume_at[later], 0
        elif block.is_last:
            return
        else:
            position, wanted = end, block.next_size


class Block:
    """A part of a file that begins with a frame."""

    def __init__(self, position: int, data: bytes | bytearray, requested: int) -> None:
        self.position = position
        """The offset of the block in the file."""
        # google-crc32c takes neither a bytearray nor a view of one.
        self._content = bytes(data)
        self.view = memoryview(self._content)
        self.data = np.frombuffer(self._content, np.uint8)
        self.is_last = len(data) < requested
        frames, lengths = self._follow()
        count = self._trusted(frames, lengths)
        is_known = count < len(lengths) and self._matches(frames[count:], lengths[count:])[0]
        self._next = lengths[count] if is_known else None
        self.starts = frames[:count] + HEADER
        """The offsets of the contents of complete records, up to the first length that does not match its checksum."""
        self.lengths = np.array(lengths[:count], np.int64)
        """The sizes of these contents, in bytes."""
        self.end = int(self.starts[-1] + self.lengths[-1]) + _FOOTER if count else 0
        """The position after these records, in the block."""

    @cached_property
    def good(self) -> npt.NDArray[np.bool_]:
        """True for each content that matches its checksum. A damaged one affects no other, as lengths are correct."""
        stored = self._stored(self.starts + self.lengths)
        matches = masked_crc32cs(self._content, self.starts, self.lengths) == stored
        return matches | (stored == _UNCHECKED)

    @property
    def next_size(self) -> int:
        """The size of the frame at `end`, in bytes; 0 if unknown."""
        return 0 if self._next is None else HEADER + self._next + _FOOTER

    @property
    def damage(self) -> DamagedRecord | None:
        """The error of the frame at `end`, if it is damaged."""
        left = len(self.view) - self.end
        if left >= HEADER and self._next is None:
            return DamagedRecord("the length of a record does not match its checksum")
        if self.next_size > _LONGEST:
            return DamagedRecord(f"a record claims to have {self._next} bytes")
        if self.is_last and left:
            what = "the header of a record" if self._next is None else f"a record of {self._next} bytes"
            return DamagedRecord(f"the file ends within {what}")
        return None

    def _follow(self) -> tuple[Positions, list[int]]:
        """Return the starts of frames, and the lengths that they claim. Only the last may be incomplete."""
        view, position, size = self.view, 0, len(self.view)
        frames, lengths = list[int](), list[int]()
        gap = next_search = _FEWEST
        while position + HEADER <= size:
            (length,) = _LENGTH.unpack_from(view, position)
            frames.append(position)
            lengths.append(length)
            position += HEADER + length + _FOOTER
            if len(lengths) == next_search:
                repeated = self._repeated(position, _cycle(lengths))
                frames += repeated[:, 0].tolist()
                lengths += repeated[:, 1].tolist()
                position = frames[-1] + HEADER + lengths[-1] + _FOOTER
                gap = _FEWEST if len(repeated) > gap else 2 * gap
                next_search = len(lengths) + gap
        self._followed_to = position
        return np.array(frames, np.int64), lengths

    def _repeated(self, position: int, cycle: Sequence[int]) -> Positions:
        """Return the starts and lengths of frames from a position on, while their lengths repeat a cycle."""
        sizes = np.array(cycle, np.int64) + (HEADER + _FOOTER)
        total = int(sizes.sum())
        times = min((len(self.data) - position - HEADER) // total, _MOST // len(cycle)) if cycle else 0
        if times <= 0:
            return np.empty((0, 2), np.int64)
        starts = (position + total * np.arange(times)[:, None] + (np.cumsum(sizes) - sizes)).ravel()
        lengths = np.tile(sizes - (HEADER + _FOOTER), times)
        stored = self.data[starts[:, None] + np.arange(_LENGTH.size)].view("<i8")[:, 0]
        differs = np.flatnonzero(stored != lengths)
        return np.stack([starts, lengths], axis=1)[: differs[0] if len(differs) else len(starts)]

    def _trusted(self, frames: Positions, lengths: Sequence[int]) -> int:
        """Return the number of frames that are complete and whose lengths match their checksums."""
        bad = np.flatnonzero(~self._matches(frames, lengths))
        if len(bad):
            return int(bad[0])
        return len(frames) - (self._followed_to > len(self.view))

    def _matches(self, frames: Positions, lengths: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return a mask of the frames whose length matches its checksum."""
        # Most frames of a file have one of few lengths.
        distinct, of_frame = np.unique(np.array(lengths, np.uint64), return_inverse=True)
        expected = np.array([masked_crc32c(_LENGTH.pack(length)) for length in distinct.tolist()], np.uint32)
        return expected[of_frame] == self._stored(frames + _LENGTH.size)

    def _stored(self, positions: Positions) -> Words:
        return self.data[positions[:, None] + np.arange(4)].view("<u4")[:, 0]


def _cycle(lengths: Sequence[int]) -> Sequence[int]:
    """Return the shortest cycle of the last lengths, as each step has the same tags; nothing if there is none."""
    known = min(len(lengths) // 2, _LONGEST_CYCLE)
    last = lengths[-known:]
    for count in range(1, known + 1):
        if lengths[-known - count : -count] == last:
            return last[-count:]
    return []


def masked_crc32cs(data: bytes, starts: Positions, lengths: Positions) -> Words:
    """Return the checksums of contents in `data`, which begin at `starts`."""
    ends = (starts + lengths).tolist()
    crcs = np.array([crc32c(data[start:end]) for start, end in zip(starts.tolist(), ends, strict=True)], np.uint32)
    return (crcs >> np.uint32(15) | crcs << np.uint32(17)) + np.uint32(_MASK)
