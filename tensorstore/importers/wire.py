"""The wire format of protocol buffers: as much of it as reading a message needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

Value: TypeAlias = "int | memoryview"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}


def fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """The fields of a message in their order, each as its number and its value: an int where it was written as a
    varint, else its bytes. Raises ValueError where the message is torn."""
    position, end = 0, len(message)
    while position < end:
        key = message[position]
        if key < 0x80:  # nearly always: a call would take longer than all the rest
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


def varint(message: memoryview, position: int) -> tuple[int, int]:
    """The unsigned number at `position`, and the position after it."""
    value = shift = 0
    while position < len(message) and shift < 64:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number without end")


def varints(packed: memoryview) -> Iterator[int]:
    """The numbers of a packed field."""
    position = 0
    while position < len(packed):
        value, position = varint(packed, position)
        yield value


def signed(value: int) -> int:
    """The int64 that was written as `value`."""
    return value - (1 << 64) if value >> 63 else value


def message(value: Value) -> memoryview:
    """A field's value that must be bytes."""
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value


def number(value: Value) -> int:
    """A field's value that must be a varint."""
    if not isinstance(value, int):
        raise ValueError("bytes where a number should be")
    return value
