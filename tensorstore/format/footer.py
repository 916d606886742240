"""Reads what the footer of a Parquet file says of its row groups.

pyarrow's readers raise an exception where a footer is damaged. Its metadata objects (`row_group`, `column`,
`statistics`) end the process instead: the exception of the C++ library passes through code that declares none. So
nothing here calls these; a test flips every bit of a footer.

https://github.com/apache/parquet-format: src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ..storage.base import ByteRange, ReadableRanges
from .thrift import read_binary, read_field, read_integer, read_list_head, read_struct, read_value

_T = TypeVar("_T")

MAGIC = b"PAR1"
_AFTER_FOOTER = 8
"""Bytes after the footer: its length, and MAGIC."""
_TAIL_BYTES = 64 << 10
"""Enough for most footers."""

# parquet.thrift's numbers: of physical types, and of fields.
_INT32, _INT64, _BYTE_ARRAY = 1, 2, 6
_LENGTHS = {_INT32: 4, _INT64: 8}
_SCHEMA, _NUM_ROWS, _ROW_GROUPS = 2, 3, 4
_COLUMNS, _ROWS_OF_GROUP = 1, 3
_METADATA = 3
_LIST = 9


class ColumnChunk(NamedTuple):
    """One column of one row group, as the footer describes it."""

    physical: int
    entries: int
    """The number of cells, nulls included; for lists, of elements."""
    nulls: int | None
    """The number of nulls, if the footer says it."""
    least: bytes | None
    greatest: bytes | None
    """Minimum and maximum as Parquet encodes them, if the footer says both."""

    def ends(self, kind: type[str] | type[int]) -> tuple[Any, Any] | None:
        """Return the least and the greatest cell of a column of texts or integers; None where the footer has none.

        Raises ValueError where they are not of this kind.
        """
        if self.least is None or self.greatest is None:
            return None
        return self._decoded(self.least, kind), self._decoded(self.greatest, kind)

    def _decoded(self, end: bytes, kind: type[str] | type[int]) -> Any:
        if kind is str and self.physical == _BYTE_ARRAY:
            return end.decode()
        if kind is int and _LENGTHS.get(self.physical) == len(end):
            return int.from_bytes(end, "little", signed=True)
        raise ValueError(f"a column of {kind.__name__} has {end!r} as its minimum or maximum")


class RowGroup(NamedTuple):
    """One row group, as the footer describes it."""

    rows: int
    columns: Mapping[str, ColumnChunk]
    """By the path of the column, its parts joined by dots."""


def row_groups(footer: bytes) -> list[RowGroup]:
    """Return the row groups of a file with this footer, which is the file's end without its last eight bytes.

    Raises ValueError, which names what is wrong, for bytes that are no footer.
    """
    return _parsed(footer)[1]


def schema_of(footer: bytes, is_verified: bool = False) -> pa.Schema:
    """Return the columns of a file with this footer.

    All of the footer is checked as by `row_groups`, unless it was verified by a checksum: that takes 10 us a column and
    row group.

    Raises ValueError, which names what is wrong, for bytes that are no footer.
    """
    if not is_verified:
        return _arrow_schema(_parsed(footer)[0])
    for elements in tuple(_elements_seen):  # most files of a run have the same ones, and a list shows where it ends
        if footer.startswith(elements, _ELEMENTS_BEGIN):
            return _arrow_schema(elements)
    elements = _named(_head, footer)[0]
    _elements_seen.append(elements)
    return _arrow_schema(elements)


_ELEMENTS_BEGIN = 3
"""Where the schema's elements begin in a footer: after the version and the field's head."""
_elements_seen: deque[bytes] = deque(maxlen=8)


@lru_cache(maxsize=64)
def _arrow_schema(elements: bytes) -> pa.Schema:
    # pyarrow reads the schema from the footer of a file with no rows.
    footer = b"\x15\x04\x19" + elements + b"\x16\x00\x19\x0c\x00"
    try:
        return pq.read_schema(pa.BufferReader(MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC))
    except (pa.ArrowException, OSError) as exc:
        raise ValueError(f"its footer has no schema: {exc}") from exc


def _parsed(footer: bytes) -> tuple[bytes, list[RowGroup]]:
    schema, rows, found = _named(_file, footer)
    if rows != sum(group.rows for group in found) or any(group.rows < 0 for group in found):
        raise ValueError(f"its footer has {rows} rows, and its row groups {[group.rows for group in found]}")
    return schema, found


def _named(parse: Callable[[bytes], _T], footer: bytes) -> _T:
    """Return what `parse` makes of a footer. Raises ValueError, which names what is wrong, where it cannot."""
    try:
        return parse(footer)
    except IndexError as exc:
        raise ValueError("its footer is truncated") from exc
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"its footer lacks a field, or has one of another type: {exc!r}") from exc


def footer_of(end: bytes | bytearray) -> bytes:
    """Return the footer from the end of a file, which may begin anywhere before the footer.

    Raises ValueError for an end that is not a Parquet file's, or that begins too late.
    """
    length = footer_length(end)
    if length > len(end) - _AFTER_FOOTER:
        raise ValueError(f"its footer claims to have {length} bytes, and there are {len(end) - _AFTER_FOOTER}")
    return bytes(end[-_AFTER_FOOTER - length : -_AFTER_FOOTER])


def footer_length(end: bytes | bytearray) -> int:
    """Return how many bytes the footer has, which stand before the last eight.

    Raises ValueError for an end that is not a Parquet file's.
    """
    if len(end) < _AFTER_FOOTER or end[-4:] != MAGIC:
        raise ValueError("it does not end like a Parquet file")
    return int.from_bytes(end[-_AFTER_FOOTER:-4], "little")


def read_footer(files: ReadableRanges, path: str, size: int) -> bytes:
    """Return the footer of a file of `size` bytes. Raises ValueError for a file that is not Parquet."""
    begin = max(0, size - _TAIL_BYTES)
    (end,) = files.read_ranges([ByteRange(path, begin, size - begin)])
    longer = footer_length(end) + _AFTER_FOOTER
    if len(end) < longer <= size:
        (end,) = files.read_ranges([ByteRange(path, size - longer, longer)])
    return footer_of(end)


def _file(footer: bytes) -> tuple[bytes, int, list[RowGroup]]:
    """Return the encoded list of the schema's elements, the number of rows, and the row groups."""
    schema, rows, position = _head(footer)
    count, _, position = read_list_head(footer, position)
    groups = []
    for _ in range(count):
        group, position = _row_group(footer, position)
        groups.append(group)
    return schema, rows, groups  # what comes after them is not needed


def _head(footer: bytes) -> tuple[bytes, int, int]:
    """Return the encoded list of the schema's elements, the number of rows, and where the list of row groups begins."""
    schema = b""
    rows = number = position = 0
    while True:
        number, kind, position = read_field(footer, position, number)
        if not kind:
            raise ValueError("its footer has no row groups")
        if number == _ROW_GROUPS and kind == _LIST:
            return schema, rows, position
        begin = position
        value, position = read_value(footer, position, kind)
        if number == _SCHEMA:
            schema = footer[begin:position]
        elif number == _NUM_ROWS:
            rows = value


def _row_group(footer: bytes, position: int) -> tuple[RowGroup, int]:
    rows, columns = -1, dict[str, ColumnChunk]()
    number = 0
    while True:
        number, kind, position = read_field(footer, position, number)
        if not kind:
            return RowGroup(rows, columns), position
        if number == _COLUMNS and kind == _LIST:
            count, _, position = read_list_head(footer, position)
            for _ in range(count):
                name, column, position = _usual(footer, position) or _unusual(footer, position)
                columns[name] = column
        else:
            value, position = read_value(footer, position, kind)
            if number == _ROWS_OF_GROUP:
                rows = int(value)


# A footer has dozens of columns for each row group, and to read one field by field takes 20 us. Nearly all have the
# fields that pyarrow and `parquet` write, in the same order: these are read by regular expressions, in a quarter of it.

_V = rb"[\x80-\xff]*+[\x00-\x7f]"  # an integer


def _elements(counts: Iterable[int], kind: int, element: bytes) -> bytes:
    """Return a pattern for a list: its head with the number of elements, and so many elements."""
    return b"(?>" + b"|".join(re.escape(bytes([count << 4 | kind])) + element * count for count in counts) + b")"


_BEFORE_PATH = re.compile(
    rb"\x26%s\x1c\x15(%s)\x19%s\x19(?=[\x18\x28\x38\x48])" % (_V, _V, _elements(range(1, 5), 5, _V))
)
_BEFORE_STATISTICS = re.compile(
    # Codec, entries, two sizes and the first data page; the dictionary, if there is one.
    rb"\x15%s\x16(%s)\x16%s\x16%s\x26%s(?>\x26%s(\x1c?)|(\x3c?))" % (_V, _V, _V, _V, _V, _V)
)
# Minimum and maximum in the deprecated fields, and how many cells are null.
_NULLS = re.compile(rb"(?>\x18\x08.{8}\x18\x08.{8}\x16|\x18\x04.{4}\x18\x04.{4}\x16|\x36)(%s)" % _V, re.DOTALL)
_AFTER_STATISTICS = re.compile(
    # Whether the ends are exact; the encodings of the pages, and what they weigh decoded.
    rb"(?:[\x11\x12]{0,2}\x00)?(?:[\x19\x29\x49]%s)?(?:[\x3c\x4c\x5c\x7c](?:\x16%s)?(?:[\x19\x29\x39]%s){0,2}\x00)?\x00\x00"
    % (_elements(range(1, 5), 12, rb"\x15%s\x15%s\x15%s\x00" % (_V, _V, _V)), _V, _elements(range(8), 6, _V))
)


def _usual(footer: bytes, position: int) -> tuple[str, ColumnChunk, int] | None:
    """Return the column that begins at a position, and where it ends; None if its fields are not the usual ones."""
    head = _BEFORE_PATH.match(footer, position)
    if head is None:
        return None
    begin = head.end()
    position = begin + 1
    for _ in range(footer[begin] >> 4):
        position += 1 + footer[position]
    found = _BEFORE_STATISTICS.match(footer, position)
    if found is None:
        return None
    nulls = least = greatest = None
    end = found.end()
    if found[2] or found[3]:
        nulls, least, greatest, end = _statistics(footer, end)
    tail = _AFTER_STATISTICS.match(footer, end)
    if tail is None:
        return None
    column = _checked(_integer(head[1]), _integer(found[1]), nulls, least, greatest)
    return _joined(footer[begin:position]), column, tail.end()


def _statistics(footer: bytes, position: int) -> tuple[int | None, bytes | None, bytes | None, int]:
    """Return the number of nulls, minimum, maximum and the position after them, if the fields are the usual ones."""
    nulls = None
    if found := _NULLS.match(footer, position):
        nulls, position = _integer(found[1]), found.end()
    if footer[position] not in (0x28, 0x58):
        return nulls, None, None, position
    greatest, position = read_binary(footer, position + 1)
    if footer[position] != 0x18:
        return nulls, None, None, len(footer)
    least, position = read_binary(footer, position + 1)
    return nulls, least, greatest, position


@lru_cache(maxsize=1024)
def _joined(path: bytes) -> str:
    return ".".join(part.decode() for part in read_value(path, 0, _LIST)[0])


@lru_cache(maxsize=1024)
def _integer(data: bytes) -> int:
    return read_integer(data, 0)[0]


def _unusual(footer: bytes, position: int) -> tuple[str, ColumnChunk, int]:
    chunk, position = read_struct(footer, position)
    metadata = chunk[_METADATA]
    found = metadata.get(12, {})
    column = _checked(metadata[1], metadata[5], found.get(3), found.get(6), found.get(5))
    return ".".join(part.decode() for part in metadata[3]), column, position


def _checked(
    physical: int, entries: int, nulls: int | None, least: bytes | None, greatest: bytes | None
) -> ColumnChunk:
    if entries < 0 or not 0 <= (nulls or 0) <= entries:
        raise ValueError(f"its footer has a column of {entries} cells, of which {nulls} are null")
    return ColumnChunk(physical, entries, nulls, least, greatest)
