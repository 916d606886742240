"""The bytes of raw values, from where the index says that they lie in a chunk."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from .errors import CorruptFile, MissingChunk
from .index import SavedTensor
from .schema import is_chunk_path
from .storage import ByteRange, Storage

_LENGTH_PREFIX = 4
# A value is read with the 16 bytes before it, of which the last 4 are its length. So the value itself begins on a
# multiple of 16 in memory, as the processor, and whoever gets the array, want it. Every value has so much before it.
_LEAD = 16


def read_bytes(storage: Storage, rows: Sequence[SavedTensor]) -> list[memoryview]:
    """The bytes of the values of rows that name a chunk, each in memory of its own, to keep and to write to.

    A value is one byte range of its chunk; ranges of several rows are read together. Compressed values, and those of 1
    GB and more, come through their row group. Raises MissingChunk or CorruptFile, naming the chunk.
    """
    try:
        if all(_is_range(row) for row in rows):
            return _read_ranges(storage, rows)
        found: dict[int, memoryview] = {}
        ranged = [place for place, row in enumerate(rows) if _is_range(row)]
        found.update(zip(ranged, _read_ranges(storage, [rows[place] for place in ranged]), strict=True))
        # In the order of their row groups, so that each is decoded once.
        others = sorted(set(range(len(rows))) - found.keys(), key=lambda place: _row_group(rows[place]))
        decoder = _Decoder(storage)
        found.update((place, memoryview(decoder.value(rows[place]))) for place in others)
        return [found[place] for place in range(len(rows))]
    except FileNotFoundError as exc:
        raise _missing(exc, rows) from exc


def _is_range(row: SavedTensor) -> bool:
    return row.offset is not None and row.parts == 1


def _read_ranges(storage: Storage, rows: Sequence[SavedTensor]) -> list[memoryview]:
    blocks = storage.read_ranges([_request(row) for row in rows])
    return [_value(row, block) for row, block in zip(rows, blocks, strict=True)]


def _request(row: SavedTensor) -> ByteRange:
    """The value with its length before it, which tells whether the chunk is what the index says."""
    chunk = _checked_chunk(row)
    assert row.offset is not None
    if row.offset < _LEAD or row.nbytes < 0:
        raise _misplaced(row)
    return ByteRange(chunk, row.offset - _LEAD, row.nbytes + _LEAD)


def _value(row: SavedTensor, block: bytes | bytearray) -> memoryview:
    if (
        len(block) != row.nbytes + _LEAD
        or int.from_bytes(block[_LEAD - _LENGTH_PREFIX : _LEAD], "little") != row.nbytes
    ):
        raise _misplaced(row)
    # A bytearray is writable memory of our own; of bytes the caller gets a copy that it may write to.
    view = memoryview(block)[_LEAD:]
    return view if isinstance(block, bytearray) else memoryview(bytearray(view))


def _checked_chunk(row: SavedTensor) -> str:
    """The path of the chunk, which a forged index could let lead anywhere. Raises CorruptFile."""
    if row.chunk is None or not is_chunk_path(row.chunk):
        raise CorruptFile(str(row.chunk), f"the index names this as the chunk of {row.name!r}, and it can be none")
    return row.chunk


def _misplaced(row: SavedTensor) -> CorruptFile:
    return CorruptFile(
        str(row.chunk), f"the value of {row.name!r} at step {row.global_step} is not where the index says"
    )


def _row_group(row: SavedTensor) -> tuple[str, int, int]:
    if row.row_group is None or row.row is None:
        _checked_chunk(row)
        raise _misplaced(row)
    return _checked_chunk(row), row.row_group, row.row


class _Decoder:
    """Reads values through their row groups, the last of which stays decoded."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._last: tuple[str, int] | None = None
        self._column: pa.ChunkedArray | None = None

    def value(self, row: SavedTensor) -> bytearray:
        try:
            return bytearray().join(self._parts(row))
        except (CorruptFile, FileNotFoundError):
            raise
        except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as exc:
            raise CorruptFile(
                str(row.chunk), f"the value of {row.name!r} at step {row.global_step} cannot be read: {exc}"
            ) from exc

    def _parts(self, row: SavedTensor) -> list[bytes]:
        """The parts of a value, which are consecutive rows, from one row group or several."""
        chunk, group, first = _row_group(row)
        parts: list[bytes] = []
        while len(parts) < (row.parts or 1):
            column = self._values(chunk, group)
            parts += [value.as_py() for value in column[first : first + (row.parts or 1) - len(parts)]]
            group, first = group + 1, 0
        return parts

    def _values(self, chunk: str, group: int) -> pa.ChunkedArray:
        if self._last != (chunk, group):
            file = pq.ParquetFile(ChunkFile(self._storage, chunk), metadata=_footer(self._storage, chunk))
            self._column = file.read_row_group(group, columns=["value"])["value"]
            self._last = chunk, group
        return self._column


@lru_cache(maxsize=32)
def _footer(storage: Storage, chunk: str) -> pq.FileMetaData:
    """Published files never change, so a footer is read once."""
    return pq.read_metadata(ChunkFile(storage, chunk))


class ChunkFile(io.RawIOBase):
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
                self._size = self._storage.size(self._chunk)
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


def _missing(exc: FileNotFoundError, rows: Sequence[SavedTensor]) -> MissingChunk:
    row = next((row for row in rows if row.chunk and row.chunk == exc.filename), rows[0])
    return MissingChunk(
        str(exc.filename),
        f"the index says that it holds {row.name!r} at step {row.global_step}, but it is not there; was it deleted?",
    )
