"""Raw values: from rows of the index to arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .chunk_values import read_bytes
from .dtypes import Array, as_scalar, from_bytes, parse_dtype
from .errors import CorruptFile
from .index import SavedTensor
from .schema import INDEX
from .storage import Storage


def read_values(storage: Storage, rows: Sequence[SavedTensor]) -> list[Array]:
    """The arrays of rows that have a raw value, writable, in the order of `rows`.

    Raises MissingChunk or CorruptFile, naming the chunk.
    """
    data = iter(read_bytes(storage, [row for row in rows if row.scalar is None]))
    return [_shaped(row, next(data)) if row.scalar is None else _from_scalar(row) for row in rows]


def _from_scalar(row: SavedTensor) -> Array:
    if row.dtype == "float64" and not row.shape:
        return np.array(row.scalar)  # a loss, a metric: a run has thousands, and the checks below cost 5 us
    try:
        with np.errstate(invalid="raise"):
            array = np.array([row.scalar]).astype(parse_dtype(row.dtype)).reshape(tuple(row.shape))
        found = as_scalar(array)
        # Before numpy 1.24 the cast of an infinity to an integer goes through in silence.
        if found is None or not (found == row.scalar or found != found):
            raise ValueError(f"{row.scalar} is no {row.dtype}")
        return array
    except (ArithmeticError, TypeError, ValueError) as exc:
        raise CorruptFile(
            INDEX, f"{row.name!r} at step {row.global_step} is no number of its dtype and shape: {exc}"
        ) from exc


def _shaped(row: SavedTensor, data: memoryview) -> Array:
    try:
        if any(length < 0 for length in row.shape):
            raise ValueError(f"no shape is {row.shape}")
        return from_bytes(data, row.dtype, tuple(row.shape))
    except ValueError as exc:
        raise CorruptFile(
            str(row.chunk),
            f"the value of {row.name!r} at step {row.global_step} does not fit its dtype and shape: {exc}",
        ) from exc
