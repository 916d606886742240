"""Columns of Arrow from numpy and from texts, buffer by buffer: `pyarrow.array` would do, but imports pandas where
there is one, and a job that trains for a second has no 0.2 s for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def numbers(values: npt.ArrayLike, kind: pa.DataType, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers, or timestamps given as integers. Null where not `valid`."""
    # Not `to_pandas_dtype`, which fails in pyarrow 25 where there is no pandas.
    dtype = f"{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}"
    array = np.ascontiguousarray(values, dtype)
    return pa.Array.from_buffers(kind, len(array), [_validity(valid), pa.py_buffer(array)])


def texts(cells: Sequence[str]) -> pa.Array:
    encoded = [cell.encode() for cell in cells]
    offsets, data = _offsets(encoded), b"".join(encoded)
    return pa.Array.from_buffers(pa.string(), len(cells), [None, offsets, pa.py_buffer(data)])


def lists(cells: Sequence[Sequence[Any]], elements: pa.Array) -> pa.Array:
    """One list for each cell, as long as it is, of the `elements` one after another."""
    return pa.Array.from_buffers(pa.list_(elements.type), len(cells), [None, _offsets(cells)], children=[elements])


def structs(columns: Sequence[pa.Array], kind: pa.DataType, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """One struct of a row of each column. Null where not `valid`."""
    return pa.Array.from_buffers(kind, len(valid), [_validity(valid)], children=list(columns))


def spread(cells: pa.Array, places: npt.NDArray[np.intp], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """For each place the cell that it points to. Null where not `valid`."""
    return cells.take(numbers(places, pa.int64(), valid))


def _validity(valid: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _offsets(cells: Sequence[Sequence[Any] | bytes]) -> pa.Buffer:
    offsets = np.zeros(len(cells) + 1, np.int32)
    np.cumsum([len(cell) for cell in cells], out=offsets[1:])
    return pa.py_buffer(offsets)
