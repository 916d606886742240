"""The part of Thrift's compact protocol that a Parquet footer needs: structs of integers, bytes, lists and structs.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, Union

# A value that is None is left out: every field here is optional or always set.
Value: TypeAlias = Union[int, bytes, "I64", "Struct", Sequence["Value"], None]

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, LIST, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12

_DEEPEST = 16
"""Levels of nested structs and lists: more than any Parquet footer has."""


class I64(int):
    """An integer that the schema declares with 64 bits; a plain int has 32."""


class Struct(dict[int, Value]):
    """Fields by their number, ascending."""

    def to_bytes(self) -> bytes:
        out = bytearray()
        _append_struct(out, self)
        return bytes(out)


_KINDS: dict[type, int] = {int: _I32, I64: _I64, bytes: _BINARY, Struct: _STRUCT}


def varint(number: int) -> bytes:
    """An unsigned integer, seven bits a byte, the lowest first."""
    out = bytearray()
    _append_varint(out, number)
    return bytes(out)


def _append_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _append_struct(out: bytearray, fields: Struct) -> None:
    last = 0
    for number, value in fields.items():
        if value is not None:
            kind = _KINDS.get(type(value), LIST)
            # The short form: Parquet's structs never leap over 15 numbers.
            out.append((number - last) << 4 | kind)
            _append(out, kind, value)
            last = number
    out.append(0)


def _append(out: bytearray, kind: int, value: Any) -> None:
    if kind == _STRUCT:
        _append_struct(out, value)
    elif kind == _BINARY:
        _append_varint(out, len(value))
        out += value
    elif kind == LIST:
        kind = _KINDS.get(type(value[0]), LIST) if value else _STRUCT
        out.append(min(len(value), 15) << 4 | kind)
        if len(value) >= 15:
            _append_varint(out, len(value))
        for each in value:
            _append(out, kind, each)
    else:
        _append_varint(out, (value << 1) ^ (value >> 63))  # zigzag: small negative numbers stay short


# Reading. For any bytes, these return values or raise ValueError or IndexError.


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return an unsigned integer and the position after it."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 63:
            raise ValueError("an integer has more than 64 bits")


def read_integer(data: bytes, position: int) -> tuple[int, int]:
    """Return a signed integer and the position after it."""
    number, position = read_varint(data, position)
    return (number >> 1) ^ -(number & 1), position


def read_struct(data: bytes, position: int = 0, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return the fields of a struct by their numbers, and the position after it."""
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} nested structs")
    fields: dict[int, Any] = {}
    number = 0
    while head := data[position]:
        position += 1
        if head > 15:
            number += head >> 4
        else:
            number, position = read_integer(data, position)
        kind, byte = head & 15, data[position]
        # Most fields are integers of one byte.
        if _I16 <= kind <= _I64 and byte < 0x80:
            fields[number] = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            fields[number], position = read_value(data, position, kind, depth + 1)
    return fields, position + 1


def read_value(data: bytes, position: int, kind: int, depth: int = 0) -> tuple[Any, int]:
    """Return the value of a field, and the position after it."""
    if _I16 <= kind <= _I64:
        return read_integer(data, position)
    if kind == _BINARY:
        length, position = read_varint(data, position)
        if length > len(data) - position:
            raise ValueError(f"{length} bytes are announced where {len(data) - position} are left")
        return data[position : position + length], position + length
    if kind == _STRUCT:
        return read_struct(data, position, depth)
    if kind == LIST:
        return _read_list(data, position, depth)
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, position
    if kind == _BYTE:
        return data[position], position + 1
    if kind == _DOUBLE:
        return data[position : position + 8], position + 8
    raise ValueError(f"unknown kind of value {kind}")


def _read_list(data: bytes, position: int, depth: int) -> tuple[list[Any], int]:
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} nested lists")
    head = data[position]
    count, kind, position = head >> 4, head & 15, position + 1
    if count == 15:
        count, position = read_varint(data, position)
    if count > len(data) - position:
        raise ValueError(f"{count} elements are announced where {len(data) - position} bytes are left")
    if kind in (_TRUE, _FALSE):
        kind = _BYTE  # in a list, unlike in a field, a truth value is a byte of its own
    found = []
    for _ in range(count):
        value, position = (
            read_struct(data, position, depth + 1) if kind == _STRUCT else read_value(data, position, kind, depth + 1)
        )
        found.append(value)
    return found, position
