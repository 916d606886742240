"""Reads raw values from the locations in chunks that the index names."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..dtypes import Array, as_scalar, from_bytes, from_rows, parse_dtype
from ..errors import CorruptFile, MissingChunk
from ..parallel import in_threads
from ..statistics.digest import digest_header, digest_of, digests_of_rows
from ..storage.base import ReadableRanges
from ..storage.open import ByteRange, Storage
from .buffer_pool import BUFFERS, HUGE_PAGE
from .index_types import SavedTensor
from .schema import INDEX, LENGTH_PREFIX, is_chunk_path
from .verified_files import verified_files

_T = TypeVar("_T")
_SPEC = slice(SavedTensor._fields.index("dtype"), SavedTensor._fields.index("nbytes") + 1)
"""The cells of a row that values in one piece of memory have in common."""
# A value is read with the 16 bytes before it; the last 4 are its length. So the value begins on a multiple of 16 in
# memory, which is fastest for the processor. Every value has at least 16 bytes before it.
_LEAD = 16
# Smaller values share pieces of memory of up to _SHARED bytes. Allocating memory for each would take longer than
# reading it, and the C library returns small pieces to the system, so that each page costs a fault again.
_SHARED = 4 << 20
# A value of more bytes is written in parts. An index may claim any length, for which no memory is allocated.
_MOST_BYTES = 1 << 30


def read_values(storage: Storage, rows: Sequence[SavedTensor], verify: bool = True) -> list[Array]:
    """Return the arrays of rows that have a raw value, in the order of `rows`. The caller may keep and write to them.

    Small values of one dtype and shape share pieces of memory of up to 4 MB; every other value has memory of its own.
    A value is one byte range of its chunk; ranges of several rows are read together. Compressed values, and those of 1
    GB and more, are read through their row group. With `verify`, values in chunks are compared with their digests.

    Raises:
        MissingChunk: A chunk is missing.
        CorruptFile: A chunk is damaged, or a value is not the one that was saved.
    """
    if len(rows) == 1 and rows[0].parts == 1 and rows[0].offset is not None:  # the case of every `value()`
        return [_read_alone(storage, rows[0], verify)]
    # Large values of a disk by two threads: one hashes, which takes the GIL, while the kernel copies for the other.
    parts = list(pieces(rows, _SHARED)) if storage.is_local else [rows]
    return list(chain.from_iterable(in_threads(lambda part: _read_part(storage, part, verify), parts, 2)))


def pieces(rows: Iterable[SavedTensor], most_bytes: int) -> Iterator[Sequence[SavedTensor]]:
    """Yield consecutive rows, whose values have at most so many bytes, or are one."""
    piece, nbytes = list[SavedTensor](), 0
    for row in rows:
        if piece and nbytes + row.nbytes > most_bytes:
            yield piece
            piece, nbytes = [], 0
        piece.append(row)
        nbytes += row.nbytes
    yield piece


def _read_part(storage: Storage, rows: Sequence[SavedTensor], verify: bool) -> list[Array]:
    found: list[Any] = [None if row.scalar is None else _from_scalar(row) for row in rows]
    raw = [at for at, array in enumerate(found) if array is None]
    for positions, data in _read_blocks(storage, rows, raw) if raw else ():
        if verify:
            check_digests([rows[at] for at in positions], data)
        for at, array in zip(positions, _shaped(from_rows, rows[positions[0]], data), strict=True):
            found[at] = array
    return found


def _read_alone(storage: Storage, row: SavedTensor, verify: bool) -> Array:
    """Return one value that is a byte range, in a third of the time of `_read_blocks`."""
    wanted, nbytes = _ranges([row]), row.nbytes
    memory = _memory(_LEAD + nbytes)
    try:
        got = storage.read_into(wanted, [memory[_LEAD - LENGTH_PREFIX :]])
    except FileNotFoundError as exc:
        raise _missing(exc, [row]) from exc
    if got[0] != nbytes + LENGTH_PREFIX or memory[_LEAD - LENGTH_PREFIX : _LEAD].tobytes() != _prefix(nbytes):
        raise _misplaced(row)
    data = memory[_LEAD:]
    if verify and (digest := digest_of(data, digest_header(row.dtype, tuple(row.shape)))) != row.digest:
        raise _damaged(row, digest)
    return _shaped(from_bytes, row, data)


def read_bytes(storage: Storage, rows: Sequence[SavedTensor]) -> list[memoryview]:
    """Return the bytes of the values of rows that name a chunk, in the order of the rows. Raises as `read_values`."""
    blocks = _read_blocks(storage, rows, range(len(rows)))
    found = {at: value.data for positions, data in blocks for at, value in zip(positions, data, strict=True)}
    return [found[at] for at in range(len(rows))]


def check_digests(rows: Sequence[SavedTensor], data: Array) -> None:
    """Raise CorruptFile unless values of one dtype and shape match the digests in their rows of the index.

    `data` are the bytes of the values, (count, nbytes) of uint8.
    """
    found = digests_of_rows(data, digest_header(rows[0].dtype, tuple(rows[0].shape)))
    if found != [row.digest for row in rows]:
        raise next(_damaged(row, digest) for row, digest in zip(rows, found, strict=True) if row.digest != digest)


_Block = tuple[list[int], Array]
"""The positions of rows of one dtype and shape, and the bytes of their values, (count, nbytes) of uint8."""


def _read_blocks(storage: Storage, rows: Sequence[SavedTensor], wanted: Iterable[int]) -> list[_Block]:
    """Return the bytes of the values of the `wanted` rows in blocks: those of a block share memory."""
    alike, compressed = dict[tuple[Any, ...], list[int]](), list[int]()
    last: Any = None
    group = list[int]()
    for at in wanted:
        row = rows[at]
        if row.offset is None or row.parts != 1:
            compressed.append(at)
            continue
        spec: Any = row[_SPEC]
        if spec != last:
            last, group = spec, alike.setdefault((row.nbytes, row.dtype, *row.shape), [])
        group.append(at)
    try:
        blocks = _read_ranges(storage, rows, alike.values())
        if compressed:
            # In the order of their row groups, so that each is decoded once.
            decoder, order = _Decoder(storage), sorted(compressed, key=lambda at: _row_group(rows[at]))
            blocks += (([at], np.frombuffer(decoder.value(rows[at]), np.uint8)[None]) for at in order)
        return blocks
    except FileNotFoundError as exc:
        raise _missing(exc, rows) from exc


def _read_ranges(storage: Storage, rows: Sequence[SavedTensor], alike: Iterable[list[int]]) -> list[_Block]:
    """Read values that are byte ranges; each list has the positions of rows of one size."""
    ranges, buffers, blocks = list[ByteRange](), list[Array](), list[_Block]()
    for positions in alike:
        ranges += _ranges([rows[at] for at in positions])
        nbytes = rows[positions[0]].nbytes
        slot = _LEAD + -(-nbytes // _LEAD) * _LEAD
        most = _SHARED // slot if nbytes < HUGE_PAGE else 1
        for first in range(0, len(positions), most):
            together = positions[first : first + most]
            data = _memory(len(together) * slot).reshape(-1, slot)[:, _LEAD - LENGTH_PREFIX : _LEAD + nbytes]
            buffers.extend(data)
            blocks.append((together, data))
    got = iter(storage.read_into(ranges, buffers))
    return [(positions, _checked(rows, positions, data, list(islice(got, len(data))))) for positions, data in blocks]


def _memory(nbytes: int) -> Array:
    """Return memory for values, an array of uint8."""
    return np.empty(nbytes, np.uint8) if nbytes < HUGE_PAGE else BUFFERS.acquire_to_read(nbytes)


def _ranges(rows: Sequence[SavedTensor]) -> list[ByteRange]:
    """Return the byte ranges of values of one size, with the length before each, which reveals a wrong chunk."""
    nbytes, found, known = rows[0].nbytes, list[ByteRange](), None
    for row in rows:
        chunk, offset = row.chunk, row.offset
        if chunk is not known or chunk is None:
            if chunk is None or not is_chunk_path(chunk):
                raise _no_chunk(row)
            known = chunk
        if offset is None or offset < _LEAD or not 0 <= nbytes <= _MOST_BYTES:
            raise _misplaced(row)
        found.append(ByteRange(chunk, offset - LENGTH_PREFIX, nbytes + LENGTH_PREFIX))
    return found


def _prefix(nbytes: int) -> bytes:
    """Return the bytes before a value: its length."""
    return nbytes.to_bytes(LENGTH_PREFIX, "little")


def _checked(rows: Sequence[SavedTensor], positions: list[int], data: Array, got: list[int]) -> Array:
    """Return the values of a block, without the lengths before them. Raise CorruptFile for a length that is wrong."""
    count, width = data.shape
    lengths, expected = data[:, :LENGTH_PREFIX].tobytes(), _prefix(width - LENGTH_PREFIX)
    if got != [width] * count or lengths != expected * count:
        read = zip(positions, got, data, strict=True)
        raise _misplaced(next(rows[at] for at, n, value in read if n != width or value.tobytes()[:4] != expected))
    return data[:, LENGTH_PREFIX:]


def _from_scalar(row: SavedTensor) -> Array:
    if row.dtype == "float64" and not row.shape:
        return np.array(row.scalar)  # losses and metrics: a run has thousands, and the checks below cost 5 us
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


def _shaped(make: Callable[[Array, str, tuple[int, ...]], _T], row: SavedTensor, data: Array) -> _T:
    """Return what `make` returns for bytes, and the dtype and shape of `row`."""
    try:
        return make(data, row.dtype, tuple(row.shape))
    except ValueError as exc:
        raise _unreadable(row, f"does not fit its dtype and shape: {exc}") from exc


def _no_chunk(row: SavedTensor) -> CorruptFile:
    """Return the error for a chunk outside of the run, which a forged index names."""
    return CorruptFile(
        str(row.chunk), f"the index names this as the chunk of {row.name!r}, but it is not the path of a chunk"
    )


def _unreadable(row: SavedTensor, fault: str) -> CorruptFile:
    return CorruptFile(str(row.chunk), f"the value of {row.name!r} at step {row.global_step} {fault}")


def _misplaced(row: SavedTensor) -> CorruptFile:
    return _unreadable(row, "is not where the index says")


def _damaged(row: SavedTensor, digest: int) -> CorruptFile:
    saved = f"{row.digest or 0:016x} was saved"
    return _unreadable(row, f"of worker {row.worker!r} is damaged: its digest is {digest:016x}, and {saved}")


def _row_group(row: SavedTensor) -> tuple[str, int, int]:
    if row.chunk is None or not is_chunk_path(row.chunk):
        raise _no_chunk(row)
    if row.row_group is None or row.row is None or min(row.row_group, row.row) < 0:
        raise _misplaced(row)
    return row.chunk, row.row_group, row.row


class _Decoder:
    """A reader of values through their row groups. The last row group stays decoded."""

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
            raise _unreadable(row, f"cannot be read: {exc}") from exc

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
    """A chunk as a seekable file for pyarrow. Each read is one verified byte range."""

    def __init__(self, storage: ReadableRanges, chunk: str) -> None:
        self._files, self._chunk, self._position = verified_files(storage), chunk, 0
        self._size: int | None = None
        self._fetched: dict[int, bytes | bytearray] = {}

    def parquet(self, metadata: pq.FileMetaData | None = None, read_dictionary: list[str] | None = None) -> Any:
        """Return the chunk as a Parquet file that reads each column at once.

        Arrow must not read ahead: it would use a thread of its own, which aborts the process if it releases a buffer of
        Python's while Python ends.
        """
        return pq.ParquetFile(self, metadata=metadata, read_dictionary=read_dictionary, pre_buffer=False)

    def fetch(self, metadata: pq.FileMetaData, group: int, columns: Collection[str]) -> None:
        """Fetch columns of a row group together. The next reads of these columns use the fetched bytes."""
        self._fetched.clear()
        chunks = map(metadata.row_group(group).column, range(metadata.num_columns))
        wanted = [_range_of(self._chunk, each) for each in chunks if each.path_in_schema.split(".")[0] in columns]
        self._fetched = dict(zip((each.start for each in wanted), self._files.read_ranges(wanted), strict=True))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

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
