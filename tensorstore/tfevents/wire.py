"""The part of the wire format of protocol buffers that event files use."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from typing import TypeAlias

Value: TypeAlias = "int | memoryview"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
_ONE_BYTE = [bytes([value]) for value in range(0x80)]
_MOST = (1 << 64) - 1
_SINGLE = struct.Struct("<f")


def fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """Yield the fields of a message in order, as number and value: an int for a varint, else the bytes.

    Raises ValueError where the message is damaged.
    """
    position, end = 0, len(message)
    while position < end:
        key = message[position]
        if key < 0x80:  # the usual case, in which a call would take longer than the rest
            position += 1
        else:
            key, position = varint(message, position)
        kind = key & 7
        if kind == VARINT:
            value, position = varint(message, position)
            yield key >> 3, value
            continue
        if kind == BYTES:
            length, position = varint(message, position)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise ValueError(f"a field of the unknown wire type {kind}")
        if position + length > end:
            raise ValueError("a field is longer than its message")
        yield key >> 3, message[position : position + length]
        position += length


def varint(message: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the unsigned number at `position`, and the position after it. Raises ValueError."""
    value = shift = 0
    while position < len(message) and shift < 64:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _MOST:
                break
            return value, position
        shift += 7
    raise ValueError("a number has no end, or more than 64 bits")


def varints(packed: memoryview) -> Iterator[int]:
    """Yield the numbers of a packed field."""
    position = 0
    while position < len(packed):
        value, position = varint(packed, position)
        yield value


def signed(value: int) -> int:
    """Return the int64 that was written as `value`."""
    return value - (1 << 64) if value >> 63 else value


def message(value: Value) -> memoryview:
    """Return a field's value, which must be bytes. Raises ValueError."""
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value


def number(value: Value) -> int:
    """Return a field's value, which must be a varint. Raises ValueError."""
    if not isinstance(value, int):
        raise ValueError("bytes where a number should be")
    return value


def floating(value: Value) -> float:
    """Return a field's value, which must be in single or double precision. Raises ValueError."""
    content = message(value)
    if len(content) not in (4, 8):
        raise ValueError(f"a number in single or double precision has {len(content)} bytes")
    (found,) = struct.unpack("<f" if len(content) == 4 else "<d", content)
    return float(found)


def varint_field(number: int, value: int) -> bytes:
    """Return a field with a number of 64 bits, which may be negative."""
    return _varint(number << 3 | VARINT) + _varint(value & _MOST)


def bytes_field(number: int, content: bytes) -> bytes:
    """Return a field with text, bytes, or a message."""
    return _varint(number << 3 | BYTES) + _varint(len(content)) + content


def double_field(number: int, value: float) -> bytes:
    """Return a field in double precision."""
    return _varint(number << 3 | FIXED64) + struct.pack("<d", value)


def float_field(number: int, value: float) -> bytes:
    """Return a field in single precision. A number that is too large for it becomes an infinity."""
    return _varint(number << 3 | FIXED32) + single(value)


def single(value: float) -> bytes:
    """Return a number in single precision. One that is too large for it becomes an infinity."""
    try:
        return _SINGLE.pack(value)
    except OverflowError:
        return _SINGLE.pack(math.copysign(math.inf, value))


def doubles_field(number: int, values: Sequence[float]) -> bytes:
    """Return a repeated field of doubles, packed."""
    return bytes_field(number, struct.pack(f"<{len(values)}d", *values))


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
