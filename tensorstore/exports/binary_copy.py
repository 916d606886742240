"""The encoder of rows for PostgreSQL's binary COPY.

It encodes whole columns, which Arrow then joins row by row. This takes a fifth of the time of encoding cell by cell.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..dtypes import Array
from ..format.arrow_arrays import numbers, numpy_of
from .json_text import as_json

_BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_ELEMENTS = {pa.string(): 25, pa.int64(): 20}
"""PostgreSQL's number of the type of a list's elements."""
_EPOCH_US = 946_684_800_000_000
"""The time from which PostgreSQL counts, the beginning of 2000, in microseconds since 1970."""
_ROWS = 1 << 14
"""The number of rows that are encoded at once."""

# A zero character and a lone surrogate, which JSON can encode and `jsonb` cannot hold.
_UNSTORABLE = re.compile(
    r"\\\\|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|(\\u0000|\\ud[89a-f][0-9a-f]{2})", re.IGNORECASE
)
_JSONB_VERSION = b"\x01"
_NUMERIC_DIGITS = 5
"""The most digits of an unsigned 64-bit integer in base 10,000."""


def encode(rows: pa.Table, documents: Collection[str]) -> list[bytes]:
    """Return rows in one chunk as parts of a COPY stream, including its header and trailer.

    Texts may be dictionaries; structs become JSON, and unsigned integers `numeric`. `documents` are the names of JSON
    columns that are `jsonb` in the database. Characters that `jsonb` cannot hold become U+FFFD.
    """
    return [_BEGIN, *(_joined(batch, documents) for batch in rows.to_batches(_ROWS)), _END]


def _joined(rows: pa.RecordBatch, documents: Collection[str]) -> bytes:
    fields = [struct.pack(">h", rows.num_columns)]
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        fields += _document(column) if name in documents else _fields(column)
    joined = pc.binary_join_element_wise(*fields, b"")
    return content(joined)


def content(cells: pa.Array) -> bytes:
    """Return the bytes of cells that are not slices, one after another."""
    first, last = numpy_of(pa.Array.from_buffers(pa.int32(), len(cells) + 1, [None, cells.buffers()[1]]))[[0, -1]]
    return bytes(memoryview(cells.buffers()[2])[first:last])


def _fields(column: pa.Array) -> Iterator[pa.Array]:
    """Yield arrays with the parts of each cell, which are to be joined row by row: its length and its bytes."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        words = [_NULL if text is None else _sized(text.encode()) for text in [*column.dictionary.to_pylist(), None]]
        yield pa.array(words, pa.binary()).take(column.indices.fill_null(len(words) - 1))
    elif pa.types.is_list(kind):
        yield from _list(column)
    elif pa.types.is_struct(kind):
        yield from _fields(as_json(column))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        yield fixed([(">i4", numpy_of(pc.binary_length(column), missing=-1))])
        yield column.cast(pa.binary()).fill_null(b"")
    else:
        yield _number(column)


def _document(column: pa.Array) -> Iterator[pa.Array]:
    texts = [None if text is None else _JSONB_VERSION + _storable(text).encode() for text in column.to_pylist()]
    return _fields(pa.array(texts, pa.binary()))


def _storable(document: str) -> str:
    return _UNSTORABLE.sub(lambda found: "\\ufffd" if found[1] else found[0], document)


def _list(column: pa.Array) -> Iterator[pa.Array]:
    elements, lengths = column.flatten(), pc.list_value_length(column)
    counts = numpy_of(lengths)
    (cells,) = _fields(elements.dictionary_encode() if pa.types.is_string(elements.type) else elements)
    offsets = numbers(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, cells), b"")
    # The header of a list: its size in bytes, the number of dimensions, the null flag, the type, and the dimension.
    kind = _ELEMENTS[column.type.value_type]
    header = fixed([(">i4", each) for each in (numpy_of(pc.binary_length(joined)) + 20, 1, 0, kind, counts, 1)])
    empty = pa.scalar(struct.pack(">4i", 12, 0, 0, kind), pa.binary())
    yield pc.if_else(pc.greater(lengths, 0), header, empty).fill_null(_NULL)
    yield joined


def _number(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_unsigned_integer(kind):
        found = fixed(_numeric(numpy_of(column)))
    else:
        values = numpy_of(column.cast(pa.int8()) if pa.types.is_boolean(kind) else column)
        values = values - _EPOCH_US if pa.types.is_timestamp(kind) else values
        found = fixed([(">i4", values.itemsize), (values.dtype.newbyteorder(">").str, values)])
    return found if not column.null_count else pc.if_else(column.is_valid(), found, pa.scalar(_NULL, pa.binary()))


def _numeric(values: Array) -> Sequence[tuple[str, Array | int]]:
    """Return integers as `numeric`: the number of digits, the weight of the first, sign, scale, and the digits."""
    digits = [values // 10_000**power % 10_000 for power in reversed(range(_NUMERIC_DIGITS))]
    head = [_NUMERIC_DIGITS, _NUMERIC_DIGITS - 1, 0, 0]
    return [(">i4", 8 + 2 * _NUMERIC_DIGITS), *((">i2", each) for each in [*head, *digits])]


def fixed(parts: Sequence[tuple[str, Array | int]]) -> pa.Array:
    """Return cells of equal length, which hold one number of each part, in order."""
    (count,) = np.broadcast_shapes(*(np.shape(values) for _, values in parts))
    cells = np.empty(count, [(f"part{number}", kind) for number, (kind, _) in enumerate(parts)])
    for number, (_, values) in enumerate(parts):
        cells[f"part{number}"] = values
    offsets = numbers(np.arange(0, cells.nbytes + 1, cells.itemsize), pa.int32())
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets.buffers()[1], pa.py_buffer(cells)])


def _sized(cell: bytes) -> bytes:
    return len(cell).to_bytes(4, "big") + cell
