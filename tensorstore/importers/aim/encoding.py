"""Aim's encoding of a tree of values as keys and values of RocksDB.

A key is the path of a value, whose parts each end with the byte 254. A part is text, which has no such byte in UTF-8,
or the byte 254 and eight bytes, a number. A value begins with a byte that says its type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

END = b"\xfe"
_NONE, _BOOL, _INT, _FLOAT, _TEXT, _BYTES, _LIST, _MAPPING = range(8)
_CUSTOM = 0x0F
_DEEPEST = 64

Part = str | int


class Marker:
    """A mapping, a list or an object, whose parts follow as values below its path."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


LIST, MAPPING = Marker("list"), Marker("mapping")


def encode_path(*parts: Part) -> bytes:
    """Return the key of a path."""
    return b"".join((part.encode() if isinstance(part, str) else END + _number(part)) + END for part in parts)


def _number(part: int) -> bytes:
    return struct.pack(">q", part)


def decode_path(key: bytes) -> tuple[Part, ...]:
    """Return the path of a key. Raises ValueError for bytes that no path encodes to."""
    parts, at = list[Part](), 0
    while at < len(key):
        if key[at : at + 1] == END:
            if key[at + 9 : at + 10] != END:
                raise ValueError(f"the key {key[:80]!r} has a number that does not end")
            parts.append(int.from_bytes(key[at + 1 : at + 9], "big", signed=True))
            at += 10
        else:
            end = key.index(END, at)
            parts.append(key[at:end].decode())
            at = end + 1
    if len(parts) > _DEEPEST:
        raise ValueError(f"its values are nested more than {_DEEPEST} deep")
    return tuple(parts)


def decode_value(value: bytes) -> Any:
    """Return a value: None, a number, a text, bytes, or a Marker. Raises ValueError for an invalid encoding."""
    # An empty value stands for a large one, which is kept elsewhere.
    if not value:
        return Marker("large")
    kind, rest = value[0], value[1:]
    try:
        if kind == _FLOAT:
            return struct.unpack("<d", rest)[0]
        if kind == _INT:
            return struct.unpack("<q", rest)[0]
        if kind == _BOOL:
            return rest != b"\0"
        if kind == _TEXT:
            return rest.decode("utf-8", "replace")
    except struct.error as exc:
        raise ValueError(f"a number has {len(rest)} bytes") from exc
    if kind == _CUSTOM:
        return Marker(rest.decode("utf-8", "replace"))
    known = {_NONE: None, _BYTES: rest, _LIST: LIST, _MAPPING: MAPPING}
    if kind not in known:
        raise ValueError(f"a value is of the unknown type {kind}")
    return known[kind]


def tree_of(rows: Iterable[tuple[tuple[Part, ...], Any]]) -> dict[Part, Any]:
    """Return the values below a path as a mapping. Objects that JSON lacks become their type.

    Args:
        rows: Paths below the mapping with their values, each parent before its children.
    """
    root = dict[Part, Any]()
    lists = list[tuple[dict[Part, Any], Part]]()
    for path, value in rows:
        if not path:
            continue
        parent = root
        for part in path[:-1]:
            below = parent.get(part)
            if not isinstance(below, dict):
                below = parent[part] = {}
            parent = below
        if value is LIST:
            lists.append((parent, path[-1]))
        if value is LIST or value is MAPPING:
            parent.setdefault(path[-1], {})
        else:
            parent[path[-1]] = value.kind if isinstance(value, Marker) else value
    # Inner lists were found after the lists that contain them, and are converted first.
    for parent, part in reversed(lists):
        items = parent[part]
        if isinstance(items, dict):
            parent[part] = [items[index] for index in sorted(items, key=_order)]
    return root


def _order(index: Part) -> tuple[bool, Part]:
    # In an undamaged list all indices are numbers.
    return isinstance(index, str), index
