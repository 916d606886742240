"""Reads the bytes of raw values from where the index says that they lie in a chunk."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..dtypes import Array
from ..errors import CorruptFile, MissingChunk
from ..statistics.digest import digest_header, digests_of_rows
from ..storage.base import ReadableRanges
from ..storage.open import ByteRange, Storage
from .index_types import SavedTensor
from .schema import is_chunk_path
from .verified_files import verified_files

_LENGTH_PREFIX = 4
# A value is read with the 16 bytes before it, of which the last 4 are its length. So the value itself begins on a
# multiple of 16 in memory, which is fastest for the processor. Every value has at least so many bytes before it.
_LEAD = 16
# Values of up to _SMALL bytes share pieces of memory of up to _SHARED bytes: to allocate memory for each would take
# longer than to read it.
_SMALL = 64 << 10
_SHARED = 4 << 20


class Block(NamedTuple):
    """The values of rows of one dtype and shape."""

    rows: list[int]
    """The positions of the rows among the requested ones."""
    data: Array
    """The bytes, (count, nbytes) of uint8, which the caller may keep and write to."""


def read_bytes(storage: Storage, rows: Sequence[SavedTensor]) -> list[memoryview]:
    """Return the bytes of the values of rows that name a chunk, in the order of the rows, as `read_blocks` does."""
    found = {position: data.data for block in read_blocks(storage, rows) for position, data in zip(*block, strict=True)}
    return [found[position] for position in range(len(rows))]


def read_blocks(storage: Storage, rows: Sequence[SavedTensor]) -> list[Block]:
    """Return the bytes of the values of rows that name a chunk. The caller may keep them and write to them.

    Small values of one dtype and shape share pieces of memory of up to 4 MB; every other value has memory of its own.

    A value is one byte range of its chunk; ranges of several rows are read together. Compressed values, and those of 1
    GB and more, are read through their row group.

    Raises:
        MissingChunk: A chunk is missing.
        CorruptFile: A chunk is damaged, or does not hold the value where the index says.
    """
    try:
        if len(rows) == 1 and _is_range(rows[0]):  # the case of every `value()`
            return [_block(0, _read_alone(storage, rows)[0])]
        together, alone, compressed = _by_way_of_reading(rows)
        blocks = _read_together(storage, rows, together)
        data = _read_alone(storage, [rows[position] for position in alone])
        blocks += map(_block, alone, data)
        # In the order of their row groups, so that each is decoded once.
        decoder = _Decoder(storage)
        for position in sorted(compressed, key=lambda position: _row_group(rows[position])):
            blocks.append(_block(position, decoder.value(rows[position])))
        return blocks
    except FileNotFoundError as exc:
        raise _missing(exc, rows) from exc


def check_digests(rows: Sequence[SavedTensor], data: Array) -> None:
    """Compare values of one dtype and shape with the digests that the index has of them.

    Args:
        rows: The rows of the values.
        data: The bytes of the values, (count, nbytes) of uint8.

    Raises:
        CorruptFile: The bytes are not those that were saved.
    """
    found = digests_of_rows(data, digest_header(rows[0].dtype, rows[0].shape))
    for row, digest in zip(rows, found, strict=True):
        if row.digest != digest:
            raise CorruptFile(
                str(row.chunk),
                f"the value of {row.name!r} at step {row.global_step} of worker {row.worker!r} is damaged: its digest "
                f"is {digest:016x}, and {row.digest or 0:016x} was saved",
            )


def _block(position: int, data: memoryview | bytearray) -> Block:
    return Block([position], np.frombuffer(data, np.uint8)[None])


def _is_range(row: SavedTensor) -> bool:
    return row.offset is not None and row.parts == 1


def _by_way_of_reading(rows: Sequence[SavedTensor]) -> tuple[list[list[int]], list[int], list[int]]:
    """Return the positions of rows whose values share memory, of other byte ranges, and of all other values."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    alone, compressed = list[int](), list[int]()
    for position, row in enumerate(rows):
        if not _is_range(row):
            compressed.append(position)
        elif 0 <= row.nbytes <= _SMALL:
            alike.setdefault((row.nbytes, row.dtype, tuple(row.shape)), []).append(position)
        else:
            alone.append(position)
    together = []
    for (nbytes, *_), positions in alike.items():
        most = _SHARED // _slot(nbytes)
        together += [positions[first : first + most] for first in range(0, len(positions), most)]
    return together, alone, compressed


def _slot(nbytes: int) -> int:
    """Return how far apart values of this size lie in memory: each has its lead before it."""
    return _LEAD + -(-nbytes // _LEAD) * _LEAD


def _read_together(storage: Storage, rows: Sequence[SavedTensor], groups: Sequence[list[int]]) -> list[Block]:
    ranges, buffers, blocks = list[ByteRange](), list[Array](), list[tuple[list[int], Array]]()
    for positions in groups:
        nbytes = rows[positions[0]].nbytes
        memory = np.empty((len(positions), _slot(nbytes)), np.uint8)
        # Only the length of the lead: values that lie one after another in their chunk are read at once.
        data = memory[:, _LEAD - _LENGTH_PREFIX : _LEAD + nbytes]
        ranges += [_request(rows[position], _LENGTH_PREFIX) for position in positions]
        buffers.extend(data)
        blocks.append((positions, data))
    got = iter(storage.read_into(ranges, buffers))
    return [
        _checked_block(rows, positions, data, np.fromiter(got, np.intp, len(positions))) for positions, data in blocks
    ]


def _checked_block(rows: Sequence[SavedTensor], positions: list[int], data: Array, got: Array) -> Block:
    """Return the values of a block, which begins with their lengths. Raises CorruptFile unless each was read whole."""
    nbytes = data.shape[1] - _LENGTH_PREFIX
    prefixes = data[:, :_LENGTH_PREFIX].view("<u4")[:, 0]
    if bad := np.flatnonzero((got != data.shape[1]) | (prefixes != nbytes)).tolist():
        raise _misplaced(rows[positions[bad[0]]])
    return Block(positions, data[:, _LENGTH_PREFIX:])


def _read_alone(storage: Storage, rows: Sequence[SavedTensor]) -> list[memoryview]:
    blocks = storage.read_ranges([_request(row, _LEAD) for row in rows])
    return [_value(row, block) for row, block in zip(rows, blocks, strict=True)]


def _request(row: SavedTensor, lead: int) -> ByteRange:
    """Return the byte range of a value with its length before it, by which a wrong chunk is detected."""
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
    # A bytearray is writable memory of our own; bytes are copied, so that the caller may write to them.
    view = memoryview(block)[_LEAD:]
    return view if isinstance(block, bytearray) else memoryview(bytearray(view))


def _checked_chunk(row: SavedTensor) -> str:
    """Return the path of the chunk. Raises CorruptFile for one that a forged index lets lead out of the run."""
    if row.chunk is None or not is_chunk_path(row.chunk):
        raise CorruptFile(
            str(row.chunk), f"the index names this as the chunk of {row.name!r}, but it is not the path of a chunk"
        )
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
        """Yield the parts of a value, which are consecutive rows of one or more row groups.

        Each row group is decoded when the one before it is no longer needed.
        """
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
            file = ChunkFile(self._storage, chunk).parquet(_footer(self._storage, chunk))
            self._column = file.read_row_group(group, columns=["value"])["value"]
            self._last = chunk, group
        return self._column


@lru_cache(maxsize=32)
def _footer(storage: Storage, chunk: str) -> pq.FileMetaData:
    """Published files never change, so a footer is read once."""
    return pq.read_metadata(ChunkFile(storage, chunk))


class ChunkFile(io.RawIOBase):
    """A chunk as the seekable file that pyarrow needs: each read is one byte range, which is verified."""

    def __init__(self, storage: ReadableRanges, chunk: str) -> None:
        self._files, self._chunk, self._position = verified_files(storage), chunk, 0
        self._size: int | None = None
        self._fetched: dict[int, bytes | bytearray] = {}

    def parquet(self, metadata: pq.FileMetaData | None = None, read_dictionary: list[str] | None = None) -> Any:
        """Return it as a Parquet file, each of whose columns is one read.

        Arrow must not read ahead: it would in a thread of its own, which aborts the process if it lets go of a buffer
        of Python's while Python ends.
        """
        return pq.ParquetFile(self, metadata=metadata, read_dictionary=read_dictionary, pre_buffer=False)

    def fetch(self, metadata: pq.FileMetaData, group: int, columns: Collection[str]) -> None:
        """Read columns of a row group together; the next reads are those of the columns, and take what was read."""
        self._fetched.clear()
        chunks = map(metadata.row_group(group).column, range(metadata.num_columns))
        wanted = [_range_of(self._chunk, each) for each in chunks if each.path_in_schema.split(".")[0] in columns]
        self._fetched = dict(zip((each.start for each in wanted), self._files.read_ranges(wanted), strict=True))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            if self._size is None:
                self._size = self._files.size(self._chunk)
            offset += self._size
        elif whence == io.SEEK_CUR:
            offset += self._position
        self._position = offset
        return offset

    def read(self, size: int = -1) -> Any:
        if size < 0:
            here, end = self._position, self.seek(0, io.SEEK_END)
            self._position, size = here, end - here
        data = self._fetched.pop(self._position, None)
        if data is None or len(data) != size:
            (data,) = self._files.read_ranges([ByteRange(self._chunk, self._position, size)])
        self._position += len(data)
        return pa.py_buffer(data)  # no copy: a row group may have a gigabyte


def _range_of(path: str, column: Any) -> ByteRange:
    first = min(each for each in (column.dictionary_page_offset, column.data_page_offset) if each)
    return ByteRange(path, first, column.total_compressed_size)


def _missing(exc: FileNotFoundError, rows: Sequence[SavedTensor]) -> MissingChunk:
    row = next((row for row in rows if row.chunk and row.chunk == exc.filename), rows[0])
    return MissingChunk(
        str(exc.filename),
        f"the index says that it holds {row.name!r} at step {row.global_step}, but it is missing; was it deleted?",
    )
