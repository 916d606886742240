"""Raw values: from rows of the index to arrays."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .dtypes import Array, as_scalar, from_bytes, parse_dtype
from .errors import CorruptFile, MissingChunk
from .index import SavedTensor
from .schema import INDEX, is_chunk_path
from .storage import ByteRange, Storage

_LENGTH_PREFIX = 4
# A value is read with the 16 bytes before it, of which the last 4 are its length. So the value itself begins on a
# multiple of 16 in memory, as the processor, and whoever gets the array, want it. Every value has so much before it.
_LEAD = 16


def read_values(storage: Storage, rows: Sequence[SavedTensor]) -> list[Array]:
    """The arrays of rows that have a raw value, writable, in the order of `rows`.

    A value is one byte range of its chunk; ranges of several rows are read together. Compressed values, and those of 1
    GB and more, come through their row group. Raises MissingChunk or CorruptFile, naming the chunk.
    """
    ranged = [row for row in rows if _is_range(row)]
    requests = [_request(row) for row in ranged]
    try:
        blocks = iter(storage.read_ranges(requests))
    except FileNotFoundError as exc:
        raise _missing(exc, rows) from exc
    return [_array(row, next(blocks)) if _is_range(row) else _read_other(storage, row) for row in rows]


def _is_range(row: SavedTensor) -> bool:
    return row.scalar is None and row.offset is not None and row.parts == 1


def _request(row: SavedTensor) -> ByteRange:
    """The value with its length before it, which tells whether the chunk is what the index says."""
    chunk = _checked_chunk(row)
    assert row.offset is not None
    if row.offset < _LEAD or row.nbytes < 0:
        raise _misplaced(row)
    return ByteRange(chunk, row.offset - _LEAD, row.nbytes + _LEAD)


def _array(row: SavedTensor, block: bytes | bytearray) -> Array:
    if (
        len(block) != row.nbytes + _LEAD
        or int.from_bytes(block[_LEAD - _LENGTH_PREFIX : _LEAD], "little") != row.nbytes
    ):
        raise _misplaced(row)
    # A bytearray is writable memory of our own; of bytes the caller gets a copy that it may write to.
    view = memoryview(block)[_LEAD:]
    return _shaped(row, view if isinstance(block, bytearray) else bytearray(view))


def _checked_chunk(row: SavedTensor) -> str:
    """The path of the chunk, which a forged index could let lead anywhere. Raises CorruptFile."""
    if row.chunk is None or not is_chunk_path(row.chunk):
        raise CorruptFile(str(row.chunk), f"the index names this as the chunk of {row.name!r}, and it can be none")
    return row.chunk


def _misplaced(row: SavedTensor) -> CorruptFile:
    return CorruptFile(
        str(row.chunk), f"the value of {row.name!r} at step {row.global_step} is not where the index says"
    )


def _read_other(storage: Storage, row: SavedTensor) -> Array:
    if row.scalar is not None:
        return _from_scalar(row)
    chunk = _checked_chunk(row)
    try:
        data = b"".join(_rows_of_chunk(storage, row))
    except FileNotFoundError as exc:
        raise _missing(exc, [row]) from exc
    except CorruptFile:
        raise
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as exc:
        raise CorruptFile(chunk, f"the value of {row.name!r} at step {row.global_step} cannot be read: {exc}") from exc
    return _shaped(row, bytearray(data))


def _rows_of_chunk(storage: Storage, row: SavedTensor) -> list[bytes]:
    """The parts of a value, which are consecutive rows, from one row group or several."""
    assert row.chunk is not None
    if row.row_group is None or row.row is None:
        raise _misplaced(row)
    chunk = pq.ParquetFile(_ChunkFile(storage, row.chunk), metadata=_footer(storage, row.chunk))
    parts: list[bytes] = []
    group, first = row.row_group, row.row
    while len(parts) < (row.parts or 1):
        column = chunk.read_row_group(group, columns=["value"])["value"]
        parts += [value.as_py() for value in column[first : first + (row.parts or 1) - len(parts)]]
        group, first = group + 1, 0
    return parts


@lru_cache(maxsize=32)
def _footer(storage: Storage, chunk: str) -> pq.FileMetaData:
    """Published files never change, so a footer is read once."""
    return pq.read_metadata(_ChunkFile(storage, chunk))


class _ChunkFile(io.RawIOBase):
    """A chunk as the seekable file that pyarrow wants: each read is one byte range."""

    def __init__(self, storage: Storage, chunk: str) -> None:
        self._storage, self._chunk, self._position = storage, chunk, 0
        self._size: int | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            if self._size is None:
                _, self._size = self._storage.read_tail(self._chunk, 1)
            offset += self._size
        elif whence == io.SEEK_CUR:
            offset += self._position
        self._position = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            here, end = self._position, self.seek(0, io.SEEK_END)
            self._position, size = here, end - here
        (data,) = self._storage.read_ranges([ByteRange(self._chunk, self._position, size)])
        self._position += len(data)
        return bytes(data)


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


def _shaped(row: SavedTensor, data: bytearray | memoryview) -> Array:
    try:
        if any(length < 0 for length in row.shape):
            raise ValueError(f"no shape is {row.shape}")
        return from_bytes(data, row.dtype, tuple(row.shape))
    except ValueError as exc:
        raise CorruptFile(
            str(row.chunk),
            f"the value of {row.name!r} at step {row.global_step} does not fit its dtype and shape: {exc}",
        ) from exc


def _missing(exc: FileNotFoundError, rows: Sequence[SavedTensor]) -> MissingChunk:
    row = next((row for row in rows if row.chunk and row.chunk == exc.filename), rows[0])
    return MissingChunk(
        str(exc.filename),
        f"the index says that it holds {row.name!r} at step {row.global_step}, but it is not there; was it deleted?",
    )
