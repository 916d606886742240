"""Conversion of numpy and Python values to Arrow columns and back, buffer by buffer.

`pyarrow.array` would do the same, but imports pandas if it is installed. That takes 0.2 s, too much for a job that
trains for a second, and for the first query of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def numbers(values: npt.ArrayLike, kind: pa.DataType, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return a column of numbers, or of timestamps from integers; null where `valid` is False."""
    array = np.ascontiguousarray(values, _dtype(kind))
    return pa.Array.from_buffers(kind, len(array), [_validity(valid), pa.py_buffer(array)])


ENCODED = pa.dictionary(pa.int32(), pa.string())
"""The type of repeated texts in memory."""


def encoded(schema: pa.Schema) -> pa.Schema:
    """Return the schema with texts as dictionaries: most texts repeat."""
    return pa.schema([field.with_type(ENCODED) if field.type == pa.string() else field for field in schema])


def texts(cells: Sequence[str | None]) -> pa.Array:
    """Return a column of texts; null where a cell is None. Bytes that are not UTF-8 are escaped."""
    encoded = [b"" if cell is None else cell.encode(errors="backslashreplace") for cell in cells]
    buffers = [_validity(_present(cells)), _offsets(encoded), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(cells), buffers)


def lists(cells: Sequence[Sequence[Any] | npt.NDArray[Any] | None], elements: pa.Array) -> pa.Array:
    """Return a column of lists as long as `cells`, filled with `elements` in order; null where a cell is None."""
    offsets = _offsets([() if cell is None else cell for cell in cells])
    buffers = [_validity(_present(cells)), offsets]
    return pa.Array.from_buffers(pa.list_(elements.type), len(cells), buffers, children=[elements])


def structs(columns: Sequence[pa.Array], kind: pa.DataType, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Return a struct column made of `columns`; null where `valid` is False."""
    return pa.Array.from_buffers(kind, len(valid), [_validity(valid)], children=list(columns))


def broadcast(cells: pa.Array, rows: npt.NDArray[np.intp], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return the cell at each of the `rows`; null where `valid` is False."""
    return cells.take(numbers(rows, pa.int64(), valid))


def column(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return Python values as a column of a type; null where a cell is None."""
    if not cells:
        return pa.nulls(0, kind)
    if kind == pa.string():
        return texts(cells)
    if pa.types.is_list(kind):
        return lists(cells, column([value for cell in cells if cell is not None for value in cell], kind.value_type))
    if pa.types.is_timestamp(kind):  # of datetimes, in UTC if they have no time zone, or of integers
        naive = [t.astimezone(UTC).replace(tzinfo=None) if getattr(t, "tzinfo", None) else t for t in cells]
        return numbers(np.array(naive, f"datetime64[{kind.unit}]").view(np.int64), kind, _present(cells))
    if pa.types.is_integer(kind):
        return numbers([0 if cell is None else cell for cell in cells], kind, _present(cells))
    if pa.types.is_floating(kind):
        return numbers([np.nan if cell is None else cell for cell in cells], kind, _present(cells))
    if pa.types.is_boolean(kind):
        buffers = [_validity(_present(cells)), _bits(np.array([bool(cell) for cell in cells], bool))]
        return pa.Array.from_buffers(kind, len(cells), buffers)
    return pa.array(cells, kind)


def table(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows of Python values as a table of a schema."""
    columns = list(zip(*rows, strict=True)) or [() for _ in schema]
    arrays = [column(cells, field.type) for cells, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def bounded(schema: pa.Schema) -> list[str]:
    """Return the columns with a minimum and a maximum in a Parquet file, for pyarrow's `write_statistics`.

    Columns of floating-point numbers have none: NaN is left out of both, and engines that order it above all other
    numbers (DuckDB, Spark) would skip row groups that hold it.
    """
    return [field.name for field in schema if not (pa.types.is_nested(field.type) or pa.types.is_floating(field.type))]


def with_decimals(schema: pa.Schema) -> pa.Schema:
    """Return the schema with decimals of 20 digits for unsigned integers of 64 bits, which not every database has."""
    decimal = pa.decimal128(20, 0)
    return pa.schema([field.with_type(decimal) if field.type == pa.uint64() else field for field in schema])


def numpy_of(array: pa.Array, missing: float = 0) -> npt.NDArray[Any]:
    """Return the numbers of an array, with `missing` for nulls. Without nulls, they share the array's memory."""
    kind = _dtype(array.type)
    if not len(array):
        return np.empty(0, kind)
    here = slice(array.offset, array.offset + len(array))
    found = np.frombuffer(array.buffers()[1], kind)[here]
    there = valid(array)
    return found if there is None else np.where(there, found, missing)


def valid(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the cells that are not null; None if no cell is null."""
    if not array.null_count:
        return None
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].view(np.bool_)


def _dtype(kind: pa.DataType) -> str:
    # Not `to_pandas_dtype`, which fails in pyarrow 25 without pandas.
    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    return f"{letter}{kind.bit_width // 8}"


def _present(cells: Sequence[Any]) -> npt.NDArray[np.bool_]:
    return np.array([cell is not None for cell in cells], bool)


def _validity(valid: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if valid is None or valid.all() else _bits(valid)


def _bits(cells: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(cells, bitorder="little"))


def _offsets(cells: Sequence[Sequence[Any] | npt.NDArray[Any] | bytes]) -> pa.Buffer:
    offsets = np.zeros(len(cells) + 1, np.int32)
    np.cumsum([len(cell) for cell in cells], out=offsets[1:])
    return pa.py_buffer(offsets)
