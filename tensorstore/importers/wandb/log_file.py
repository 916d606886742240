"""The framing of .wandb files, which is the log format of LevelDB.

The file has blocks of 32,768 bytes. The first block begins with 7 further bytes: `:W&B`, the number 0xBEE1 and a
version, 0. A record is one or several fragments, and no fragment crosses the end of a block:

    uint32 checksum    uint16 length    uint8 kind    length bytes

All little-endian. The checksum is the CRC-32 of the kind and the bytes. Kinds: 1 a whole record, 2 its first fragment,
3 one in the middle, 4 its last. Fewer than 7 bytes at the end of a block are zeros.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

from ...errors import CorruptFile

_BLOCK = 1 << 15
_FILE_HEADER = struct.Struct("<4sHB")
_HEADER = struct.Struct("<IHB")
_MAGIC = (b":W&B", 0xBEE1)
_FULL, _FIRST, _LAST = 1, 2, 4
_NONE = 0  # stands for a damaged fragment


def records(data: bytes, path: str, on_damage: Callable[[str], object]) -> Iterator[memoryview]:
    """Yield the whole records of a file, and pass a sentence about each damaged place to `on_damage`.

    Reading continues at the block after the damage. The last record is incomplete in a file that is still written to,
    or whose job was killed.

    Raises:
        CorruptFile: It is not a .wandb file, or has another version.
    """
    _check_header(data, path)
    parts: list[memoryview] = []  # the fragments of an incomplete record
    for kind, fragment, position in _fragments(memoryview(data), on_damage):
        if kind == _NONE:
            parts = []
            continue
        begins, ends = kind in (_FULL, _FIRST), kind in (_FULL, _LAST)
        if begins == bool(parts):
            on_damage(f"at byte {position} a record has no beginning, or the previous record no end")
        if begins:
            parts = [fragment]
        elif parts:
            parts.append(fragment)
        if ends and parts:
            yield parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
            parts = []
    if parts:
        on_damage("its last record is incomplete")


def _check_header(data: bytes, path: str) -> None:
    if len(data) < _FILE_HEADER.size:
        raise CorruptFile(path, "this .wandb file is empty, or ends in its header")
    *magic, version = _FILE_HEADER.unpack_from(data)
    if tuple(magic) != _MAGIC:
        raise CorruptFile(path, "this is not a .wandb file")
    if version != 0:
        raise CorruptFile(path, f"this .wandb file has the version {version}, and only version 0 is known")


def _fragments(data: memoryview, on_damage: Callable[[str], object]) -> Iterator[tuple[int, memoryview, int]]:
    """Yield the kind of each fragment, its bytes and its position."""
    position = _FILE_HEADER.size
    while position < len(data):
        block_end = position - position % _BLOCK + _BLOCK
        if block_end - position < _HEADER.size:
            position = block_end
            continue
        begin, end = position + _HEADER.size, len(data) + 1  # beyond the file, for a truncated header
        if begin <= len(data):
            checksum, length, kind = _HEADER.unpack_from(data, position)
            end = begin + length
        if end > len(data) and block_end >= len(data):
            on_damage(f"its last record, at byte {position}, is incomplete")
            yield _NONE, data[:0], position
            return
        fragment = data[begin:end]
        if end > block_end or not _FULL <= kind <= _LAST or zlib.crc32(fragment, zlib.crc32(bytes([kind]))) != checksum:
            on_damage(f"the record at byte {position} is damaged")
            yield _NONE, data[:0], position
            position = block_end
            continue
        yield kind, fragment, position
        position = end
