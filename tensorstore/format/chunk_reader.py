"""The bytes of raw values, from where the index says that they lie in a chunk."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..dtypes import Array
from ..errors import CorruptFile, MissingChunk
from ..storage.open import ByteRange, Storage
from .index_types import SavedTensor
from .schema import is_chunk_path

_LENGTH_PREFIX = 4
# A value is read with the 16 bytes before it, of which the last 4 are its length. So the value itself begins on a
# multiple of 16 in memory, as the processor, and whoever gets the array, want it. Every value has so much before it.
_LEAD = 16
# Values of up to so many bytes share memory, so many bytes in one piece: memory of its own takes a small value longer
# than to be read.
_SMALL = 64 << 10
_SHARED = 4 << 20


class Block(NamedTuple):
    """The values of rows of one dtype and shape."""

    places: list[int]
    """Of the rows, among those that were asked for."""
    data: Array
    """The bytes, (count, nbytes) of uint8, to keep and to write to."""


def read_bytes(storage: Storage, rows: Sequence[SavedTensor]) -> list[memoryview]:
    """The bytes of the values of rows that name a chunk, in the order of the rows, as `read_blocks` gives them."""
    found = {place: data.data for block in read_blocks(storage, rows) for place, data in zip(*block, strict=True)}
    return [found[place] for place in range(len(rows))]


def read_blocks(storage: Storage, rows: Sequence[SavedTensor]) -> list[Block]:
    """The bytes of the values of rows that name a chunk, to keep and to write to; small values that are alike in pieces
    of memory of up to 4 MB, every other one in memory of its own.

    A value is one byte range of its chunk; ranges of several rows are read together. Compressed values, and those of 1
    GB and more, come through their row group. Raises MissingChunk or CorruptFile, naming the chunk.
    """
    try:
        if len(rows) == 1 and _is_range(rows[0]):  # what every `value()` asks for
            return [_block(0, _read_alone(storage, rows)[0])]
        together, alone, compressed = _sorted_out(rows)
        blocks = _read_together(storage, rows, together)
        data = _read_alone(storage, [rows[place] for place in alone])
        blocks += map(_block, alone, data)
        # In the order of their row groups, so that each is decoded once.
        decoder = _Decoder(storage)
        for place in sorted(compressed, key=lambda place: _row_group(rows[place])):
            blocks.append(_block(place, decoder.value(rows[place])))
        return blocks
    except FileNotFoundError as exc:
        raise _missing(exc, rows) from exc


def _block(place: int, data: memoryview | bytearray) -> Block:
    return Block([place], np.frombuffer(data, np.uint8)[None])


def _is_range(row: SavedTensor) -> bool:
    return row.offset is not None and row.parts == 1


def _sorted_out(rows: Sequence[SavedTensor]) -> tuple[list[list[int]], list[int], list[int]]:
    """The places of the rows whose values share a piece of memory, of other byte ranges, and of those that are none."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    alone, compressed = list[int](), list[int]()
    for place, row in enumerate(rows):
        if not _is_range(row):
            compressed.append(place)
        elif 0 <= row.nbytes <= _SMALL:
            alike.setdefault((row.nbytes, row.dtype, tuple(row.shape)), []).append(place)
        else:
            alone.append(place)
    together = []
    for (nbytes, *_), places in alike.items():
        most = _SHARED // _slot(nbytes)
        together += [places[first : first + most] for first in range(0, len(places), most)]
    return together, alone, compressed


def _slot(nbytes: int) -> int:
    """How far apart values of this size lie in memory: each has its lead before it."""
    return _LEAD + -(-nbytes // _LEAD) * _LEAD


def _read_together(storage: Storage, rows: Sequence[SavedTensor], groups: Sequence[list[int]]) -> list[Block]:
    ranges, buffers, blocks = list[ByteRange](), list[Array](), list[tuple[list[int], Array]]()
    for places in groups:
        nbytes = rows[places[0]].nbytes
        memory = np.empty((len(places), _slot(nbytes)), np.uint8)
        # Of the lead the length only: values that lie one after another in their chunk are read in one go.
        data = memory[:, _LEAD - _LENGTH_PREFIX : _LEAD + nbytes]
        ranges += [_request(rows[place], _LENGTH_PREFIX) for place in places]
        buffers.extend(data)
        blocks.append((places, data))
    got = iter(storage.read_into(ranges, buffers))
    return [_checked_block(rows, places, data, np.fromiter(got, np.intp, len(places))) for places, data in blocks]


def _checked_block(rows: Sequence[SavedTensor], places: list[int], data: Array, got: Array) -> Block:
    """The values of a block, which begins with their lengths, if every one of them was `got` whole."""
    nbytes = data.shape[1] - _LENGTH_PREFIX
    prefixes = data[:, :_LENGTH_PREFIX].view("<u4")[:, 0]
    if bad := np.flatnonzero((got != data.shape[1]) | (prefixes != nbytes)).tolist():
        raise _misplaced(rows[places[bad[0]]])
    return Block(places, data[:, _LENGTH_PREFIX:])


def _read_alone(storage: Storage, rows: Sequence[SavedTensor]) -> list[memoryview]:
    blocks = storage.read_ranges([_request(row, _LEAD) for row in rows])
    return [_value(row, block) for row, block in zip(rows, blocks, strict=True)]


def _request(row: SavedTensor, lead: int) -> ByteRange:
    """The value with its length before it, which tells whether the chunk is what the index says."""
    chunk = _checked_chunk(row)
    assert row.offset is not None
    if row.offset < _LEAD or row.nbytes < 0:
        raise _misplaced(row)
    return ByteRange(chunk, row.offset - lead, row.nbytes + lead)


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
    if row.row_group is None or row.row is None or min(row.row_group, row.row) < 0:
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
            value = bytearray()
            for part in self._parts(row):
                value += part
            return value
        except (CorruptFile, FileNotFoundError):
            raise
        except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as exc:
            raise CorruptFile(
                str(row.chunk), f"the value of {row.name!r} at step {row.global_step} cannot be read: {exc}"
            ) from exc

    def _parts(self, row: SavedTensor) -> Iterator[pa.Buffer]:
        """Yield the parts of a value, which are consecutive rows of one row group or several, each of which is decoded
        when the one before it is no longer needed."""
        chunk, group, first = _row_group(row)
        wanted = row.parts or 1
        while wanted > 0:
            column = self._values(chunk, group)[first : first + wanted]
            yield from (value.as_buffer() for value in column)
            wanted -= len(column)
            group, first = group + 1, 0

    def _values(self, chunk: str, group: int) -> pa.ChunkedArray:
        if self._last != (chunk, group):
            self._last = self._column = None
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
