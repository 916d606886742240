"""Arrow arrays of Python values without pandas, which `pyarrow.array` imports where it is installed: 0.2 s of the first
answer of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def arrow_table(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows as a table of this schema."""
    columns = list(zip(*rows, strict=True)) or [() for _ in schema]
    arrays = [arrow_array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def arrow_array(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The cells, None among them, as an array of this type."""
    present = [cell is not None for cell in cells]
    valid = None if all(present) else _bits(present)
    if kind == pa.string():
        texts = [cell.encode() if cell is not None else b"" for cell in cells]
        return pa.Array.from_buffers(kind, len(cells), [valid, _offsets(texts), pa.py_buffer(b"".join(texts))])
    if pa.types.is_list(kind):
        lists = [cell if cell is not None else () for cell in cells]
        values = arrow_array([value for each in lists for value in each], kind.value_type)
        return pa.Array.from_buffers(kind, len(cells), [valid, _offsets(lists)], children=[values])
    if pa.types.is_integer(kind) or (pa.types.is_timestamp(kind) and all(isinstance(cell, int) for cell in cells)):
        numbers = np.array([cell if cell is not None else 0 for cell in cells], f"i{kind.bit_width // 8}")
        return pa.Array.from_buffers(kind, len(cells), [valid, pa.py_buffer(numbers)])
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, len(cells), [valid, _bits([bool(cell) for cell in cells])])
    return pa.array(cells, kind)


def _bits(cells: Sequence[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(cells, bool), bitorder="little"))


def _offsets(cells: Sequence[Any]) -> pa.Buffer:
    """Where each cell begins among all, and where the last ends."""
    return pa.py_buffer(np.cumsum([0, *map(len, cells)], dtype=np.int32))


def numbers(array: pa.Array, missing: int = 0) -> np.ndarray[Any, Any]:
    """The numbers of an array, in its own memory where none is null; `missing` for those that are."""
    kind = f"{'f' if pa.types.is_floating(array.type) else 'i'}{array.type.bit_width // 8}"
    if not len(array):
        return np.empty(0, kind)
    here = slice(array.offset, array.offset + len(array))
    valid, data = array.buffers()
    found = np.frombuffer(data, kind)[here]
    if not array.null_count:
        return found
    return np.where(np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[here], found, missing)
