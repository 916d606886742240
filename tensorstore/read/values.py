"""Raw values: arrays from rows of the index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dtypes import Array, as_scalar, from_rows, parse_dtype
from ..errors import CorruptFile
from ..format.chunk_reader import check_digests, read_blocks
from ..format.index_types import SavedTensor
from ..format.schema import INDEX
from ..storage.open import Storage


def read_values(storage: Storage, rows: Sequence[SavedTensor], verify: bool = True) -> list[Array]:
    """Return the arrays of rows that have a raw value, writable, in the order of `rows`.

    Args:
        storage: The run.
        rows: Rows of its index.
        verify: Compare values in chunks with their digests.

    Raises:
        MissingChunk: A chunk is missing.
        CorruptFile: A chunk is damaged, or a value is not the one that was saved.
    """
    if len(rows) == 1 and rows[0].scalar is None:  # every call of `value()`
        ((_, data),) = read_blocks(storage, rows)
        if verify:
            check_digests(rows, data)
        return _shaped(rows[0], data)
    found = {number: _from_scalar(row) for number, row in enumerate(rows) if row.scalar is not None}
    raw = [number for number in range(len(rows)) if number not in found]
    if raw:
        for numbers, data in read_blocks(storage, [rows[number] for number in raw]):
            alike = [raw[number] for number in numbers]
            if verify:
                check_digests([rows[number] for number in alike], data)
            found.update(zip(alike, _shaped(rows[alike[0]], data), strict=True))
    return [found[number] for number in range(len(rows))]


def _from_scalar(row: SavedTensor) -> Array:
    if row.dtype == "float64" and not row.shape:
        return np.array(row.scalar)  # a loss, a metric: a run has thousands, and the checks below cost 5 us
    try:
        with np.errstate(invalid="raise"):
            array = np.array([row.scalar]).astype(parse_dtype(row.dtype)).reshape(tuple(row.shape))
        found = as_scalar(array)
        # Before numpy 1.24 the cast of an infinity to an integer raises nothing.
        if found is None or not (found == row.scalar or found != found):
            raise ValueError(f"{row.scalar} is no {row.dtype}")
        return array
    except (ArithmeticError, TypeError, ValueError) as exc:
        raise CorruptFile(
            INDEX, f"{row.name!r} at step {row.global_step} is no number of its dtype and shape: {exc}"
        ) from exc


def _shaped(row: SavedTensor, data: Array) -> list[Array]:
    """Return the arrays of values with the dtype and shape of `row`, from their bytes."""
    try:
        if any(length < 0 for length in row.shape):
            raise ValueError(f"no shape is {row.shape}")
        return from_rows(data, row.dtype, tuple(row.shape))
    except ValueError as exc:
        raise CorruptFile(
            str(row.chunk),
            f"the value of {row.name!r} at step {row.global_step} does not fit its dtype and shape: {exc}",
        ) from exc
