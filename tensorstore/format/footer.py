"""Reads the description of the row groups in the footer of a Parquet file.

pyarrow's readers raise an exception where a footer is damaged. Its metadata objects (`row_group`, `column`,
`statistics`) end the process instead, because the exception of the C++ library passes through code that declares none.
So this module does not use them; a test flips every bit of a footer.

https://github.com/apache/parquet-format: src/main/thrift/parquet.thrift
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from .checksum import AFTER_FOOTER, MAGIC
from .thrift import LIST, read_integer, read_struct, read_value

# parquet.thrift's numbers: of physical types, and of fields.
_INT32, _INT64 = 1, 2
_LENGTHS = {_INT32: 4, _INT64: 8}
_NUM_ROWS, _ROW_GROUPS = 3, 4
_COLUMNS, _ROWS_OF_GROUP = 1, 3
_METADATA = 3
_TYPE, _PATH, _STATISTICS = 1, 3, 12
_MAX_VALUE, _MIN_VALUE = 5, 6


class RowGroup(NamedTuple):
    """One row group, as the footer describes it."""

    rows: int
    ends: Mapping[str, tuple[int, int]]
    """The least and the greatest cell of each column of integers, if the footer has both."""


def row_groups(footer: bytes) -> list[RowGroup]:
    """Return the row groups in a footer: the end of a file without its last eight bytes.

    Raise ValueError, which names the fault, for bytes that are not a footer.
    """
    with _naming_errors():
        file, _ = read_struct(footer)
        groups = [RowGroup(group[_ROWS_OF_GROUP], dict(_ends(group[_COLUMNS]))) for group in file[_ROW_GROUPS]]
        rows = [group.rows for group in groups]
        if file[_NUM_ROWS] != sum(rows) or min(rows, default=0) < 0:
            raise ValueError(f"its footer has {file[_NUM_ROWS]} rows, and its row groups {rows}")
        return groups


@contextmanager
def _naming_errors() -> Iterator[None]:
    """Raise ValueError, which names the fault, if a footer cannot be parsed inside the block."""
    try:
        yield
    except IndexError as exc:
        raise ValueError("its footer is truncated") from exc
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"its footer lacks a field, or has one of another type: {exc!r}") from exc


def _ends(chunks: list[Mapping[int, Any]]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the path of each column of integers, its parts joined by dots, with its least and greatest cell."""
    for chunk in chunks:
        about = chunk[_METADATA]
        statistics, length = about.get(_STATISTICS, {}), _LENGTHS.get(about[_TYPE])
        least, greatest = statistics.get(_MIN_VALUE), statistics.get(_MAX_VALUE)
        if length and least is not None and greatest is not None:
            if len(least) != length or len(greatest) != length:
                raise ValueError(f"a column has {least!r} and {greatest!r} as its minimum and maximum")
            ends = int.from_bytes(least, "little", signed=True), int.from_bytes(greatest, "little", signed=True)
            yield b".".join(about[_PATH]).decode(), ends


def schema_of(footer: bytes) -> pa.Schema:
    """Return the columns of a file with this footer, which was verified by a checksum.

    Raise ValueError, which names the fault, for bytes that are not a footer.
    """
    return _arrow_schema(_elements(footer))


def num_rows(footer: bytes) -> int:
    """Return the number of rows of a file with this footer. Raise ValueError as `schema_of`."""
    with _naming_errors():
        position = _ELEMENTS_BEGIN + len(_elements(footer))
        if footer[position] != _INTEGER_NEXT:
            raise ValueError("its footer lacks the number of rows")
        return read_integer(footer, position + 1)[0]


def texts_of(footer: bytes, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the texts from the first of these keys on, by their keys. Raise ValueError as `schema_of`."""
    # Parsing all that is before it takes ten times as long. A text has no byte of the head of a key: JSON escapes it.
    found, texts = [at for key in keys if (at := footer.rfind(_head(key))) >= 0], dict[bytes, bytes]()
    position = min(found, default=len(footer) - 1)
    with _naming_errors():
        while footer[position] == _TEXT_NEXT:
            key, position = read_value(footer, position + 1, _TEXT_NEXT & 15)
            if footer[position] == _TEXT_NEXT:
                texts[key], position = read_value(footer, position + 1, _TEXT_NEXT & 15)
                position += 1
    return texts


def _head(key: bytes) -> bytes:
    return bytes([_TEXT_NEXT, len(key)]) + key + bytes([_TEXT_NEXT])


def _elements(footer: bytes) -> bytes:
    """Return the bytes of the schema's elements in the footer."""
    for elements in tuple(_elements_seen):  # most files of a run have equal ones, and a list shows where it ends
        if footer.startswith(elements, _ELEMENTS_BEGIN):
            return elements
    with _naming_errors():
        _, end = read_value(footer, _ELEMENTS_BEGIN, LIST)
    elements = footer[_ELEMENTS_BEGIN:end]
    _elements_seen.append(elements)
    return elements


_ELEMENTS_BEGIN = 3
"""The offset of the schema's elements in a footer: after the version and the field's head."""
_INTEGER_NEXT, _TEXT_NEXT = 0x16, 0x18
"""The head of the next field, if it is an integer of 64 bits; if it is a text."""
_elements_seen: deque[bytes] = deque(maxlen=8)


@lru_cache(maxsize=64)
def _arrow_schema(elements: bytes) -> pa.Schema:
    # pyarrow reads the schema from the footer of a file with no rows.
    footer = b"\x15\x04\x19" + elements + b"\x16\x00\x19\x0c\x00"
    try:
        return pq.read_schema(pa.BufferReader(MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC))
    except (pa.ArrowException, OSError) as exc:
        raise ValueError(f"its footer has no schema: {exc}") from exc


def footer_of(end: bytes | bytearray) -> bytes:
    """Return the footer from the end of a file, which may begin anywhere before the footer.

    Raise ValueError if the end is not a Parquet file's, or too short.
    """
    if len(end) < AFTER_FOOTER or end[-4:] != MAGIC:
        raise ValueError("it does not end like a Parquet file")
    length = int.from_bytes(end[-AFTER_FOOTER:-4], "little")
    if length > len(end) - AFTER_FOOTER:
        raise ValueError(f"its footer claims to have {length} bytes, and there are {len(end) - AFTER_FOOTER}")
    return bytes(end[-AFTER_FOOTER - length : -AFTER_FOOTER])
