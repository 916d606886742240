"""Thrift's compact protocol, as far as a Parquet footer needs it: structs of integers, bytes, lists and structs.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, Union

# A value that is None is left out: every field here is optional or known to be given.
Value: TypeAlias = Union[int, bytes, "I64", "Struct", Sequence["Value"], None]

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12


class I64(int):
    """An integer that the schema declares as 64 bits; a plain int is one of 32."""


class Struct(dict[int, Value]):
    """Fields by their number, ascending."""

    def to_bytes(self) -> bytes:
        out = bytearray()
        last = 0
        for number, value in self.items():
            if value is None:
                continue
            # The short form: Parquet's structs never leap over 15 numbers.
            out.append((number - last) << 4 | _kind(value))
            out += _encode(value)
            last = number
        out.append(0)
        return bytes(out)


def varint(number: int) -> bytes:
    """An unsigned integer, seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _kind(value: Value) -> int:
    if isinstance(value, I64):
        return _I64
    if isinstance(value, int):
        return _I32
    if isinstance(value, bytes):
        return _BINARY
    return _STRUCT if isinstance(value, Struct) else _LIST


def _encode(value: Value) -> bytes:
    if isinstance(value, int):
        return varint((value << 1) ^ (value >> 63))  # zigzag: small negative numbers stay short
    if isinstance(value, bytes):
        return varint(len(value)) + value
    if isinstance(value, Struct):
        return value.to_bytes()
    assert value is not None
    kind = _kind(value[0]) if value else _STRUCT
    head = bytes([len(value) << 4 | kind]) if len(value) < 15 else bytes([0xF0 | kind]) + varint(len(value))
    return head + b"".join(map(_encode, value))
