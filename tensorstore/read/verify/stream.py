"""Verifies a chunk in one read from its beginning to its end: its blocks, and the raw values in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...dtypes import Array, parse_dtype
from ...errors import StorageError, UnsupportedValue
from ...format.arrow_arrays import numpy_of
from ...format.checksum import BLOCK_BYTES, Seal
from ...format.schema import LENGTH_PREFIX
from ...statistics.digest import LEAF_BYTES, digest_header, digest_of, digest_of_leaves, leaves_of
from ...storage.base import Blocks, ByteRange
from ...storage.open import Storage

_LEAST_OFFSET = 16
_PIECE_BYTES = 1 << 20
"""A piece of a local file stays in the processor's cache, where its blocks and its values are hashed."""
_REMOTE_PIECE_BYTES = 16 << 20
assert _PIECE_BYTES % BLOCK_BYTES == _REMOTE_PIECE_BYTES % BLOCK_BYTES == 0


class FileInMemory:
    """A file of a run that was read whole."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.data = path, data

    def size(self, path: str) -> int:
        """Return the file's size in bytes."""
        assert path == self.path
        return len(self.data)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> Blocks:
        """Return the bytes of each range, in the order of `ranges`."""
        return [self.data[each.start : max(0, each.end)] for each in ranges]


class Piece(NamedTuple):
    """Consecutive bytes of a file."""

    start: int
    """The offset in the file at which they begin, in bytes."""
    data: memoryview
    """The bytes: fewer than requested if the file ends early or cannot be read. Valid until the next piece."""
    error: StorageError | None = None
    """The reason why they could not be read."""

    def check(self, seal: Seal) -> None:
        """Raise the error of bytes that could not be read, or that do not match their checksums."""
        if self.error is not None:
            raise self.error
        seal.check(self.data, self.start)


def pieces_of(source: FileInMemory | Storage, path: str, start: int, end: int) -> Iterator[Piece]:
    """Yield the bytes of a file from `start` to before `end`, in pieces of a multiple of BLOCK_BYTES."""
    if isinstance(source, FileInMemory):
        yield Piece(start, memoryview(source.data)[start:end])
        return
    nbytes = _PIECE_BYTES if source.is_local else _REMOTE_PIECE_BYTES
    # One buffer for all pieces: new memory for each would cost more than all hashes.
    buffer: Any = np.empty(min(nbytes, max(0, end - start)), np.uint8)
    while start < end:
        target = buffer[: end - start]
        try:
            (got,) = source.read_into([ByteRange(path, start, len(target))], [target])
            yield Piece(start, memoryview(target)[:got])
        except StorageError as exc:
            yield Piece(start, memoryview(b""), exc)
        start += len(target)


class ValueRanges:
    """Raw values by their byte ranges in one chunk, which are ascending and do not overlap."""

    def __init__(self, rows: pa.Table, size: int) -> None:
        """Take the rows whose value is one byte range of a chunk of `size` bytes, and fits its dtype and shape."""
        cells = {name: rows[name].combine_chunks() for name in ("offset", "nbytes", "parts", "digest")}
        offset, nbytes, parts = (numpy_of(cells[name], -1) for name in ("offset", "nbytes", "parts"))
        self._headers, codes, expected = _headers(rows)
        usable = (offset >= _LEAST_OFFSET) & (parts == 1) & (nbytes >= 0) & (nbytes == expected[codes])
        usable &= nbytes <= size - offset
        order = np.flatnonzero(usable)
        order = order[np.argsort(offset[order], kind="stable")]
        begins, ends = offset[order] - LENGTH_PREFIX, offset[order] + nbytes[order]
        apart = np.concatenate([[True], begins[1:] >= np.maximum.accumulate(ends)[:-1]]) if len(order) else usable[:0]
        self.rows = order[apart]
        """The positions of the rows among the given ones."""
        self.begins, self.ends = begins[apart], ends[apart]
        self._codes = codes[self.rows]
        self._digests = numpy_of(cells["digest"], 0)[self.rows]
        self.proved = np.zeros(len(self.rows), bool)
        """A mask of the values that agree with their digests."""
        self._split: _SplitValue | None = None

    @property
    def extent(self) -> tuple[int, int]:
        """Return the offsets of the first value, with the length before it, and of the end of the last, in bytes."""
        return (int(self.begins[0]), int(self.ends[-1])) if len(self.rows) else (0, 0)

    def check(self, piece: Piece) -> None:
        """Verify the values in the next piece of the chunk. A value that continues after it is verified later."""
        start, end = piece.start, piece.start + len(piece.data)
        self._go_on(piece)
        first = int(np.searchsorted(self.begins, start))
        last = max(first, int(np.searchsorted(self.ends, end, side="right")))
        self._check_whole(piece, first, last)
        if last < len(self.rows) and start <= self.begins[last] < end:
            self._split = _SplitValue(last, end)
            self._split.append(piece.data[self.begins[last] - start :])

    def _go_on(self, piece: Piece) -> None:
        split = self._split
        if split is None:
            return
        row, self._split = split.row, None
        if split.end != piece.start:
            return  # bytes before this piece could not be read
        left = int(self.ends[row]) - piece.start
        split.append(piece.data[:left])
        if left > len(piece.data):
            split.end = piece.start + len(piece.data)
            self._split = split
            return
        nbytes, digest = split.finish(self._headers[self._codes[row]])
        is_same = digest == int(self._digests[row])
        self.proved[row] = is_same and nbytes == self.ends[row] - self.begins[row] - LENGTH_PREFIX

    def _check_whole(self, piece: Piece, first: int, last: int) -> None:
        if first == last:
            return
        data, headers = piece.data, self._headers
        begins, ends = self.begins[first:last] - piece.start, self.ends[first:last] - piece.start
        prefixes = np.frombuffer(data, np.uint8)[begins[:, None] + np.arange(LENGTH_PREFIX)].view("<u4")[:, 0]
        proved = prefixes == ends - begins - LENGTH_PREFIX
        values = zip((begins + LENGTH_PREFIX).tolist(), ends.tolist(), self._codes[first:last].tolist(), strict=True)
        found = [digest_of(data[begin:end], headers[code]) for begin, end, code in values]
        self.proved[first:last] = proved & (np.array(found, np.uint64) == self._digests[first:last])


class _SplitValue:
    """A value whose bytes come in several pieces: its length, then its leaves."""

    def __init__(self, row: int, end: int) -> None:
        self.row = row
        self.end = end
        """The offset up to which the file was read."""
        self._prefix, self._rest = bytearray(), bytearray()
        self._leaves: list[Array] = []

    def append(self, data: memoryview) -> None:
        """Add the next bytes."""
        missing = LENGTH_PREFIX - len(self._prefix)
        self._prefix += data[:missing]
        data = data[missing:]
        if self._rest:
            missing = LEAF_BYTES - len(self._rest)
            self._rest += data[:missing]
            data = data[missing:]
            if len(self._rest) < LEAF_BYTES:
                return
            self._leaves.append(leaves_of(self._rest))
            self._rest = bytearray()
        whole = len(data) - len(data) % LEAF_BYTES
        self._leaves.append(leaves_of(data[:whole]))
        self._rest += data[whole:]

    def finish(self, header: bytes) -> tuple[int, int]:
        """Return the length that is stored before the value, and the digest of the value."""
        leaves = np.concatenate([*self._leaves, leaves_of(self._rest)])
        return int.from_bytes(self._prefix, "little"), digest_of_leaves(leaves, header)


def _headers(rows: pa.Table) -> tuple[list[bytes], Array, Array]:
    """Return the distinct headers of digests, each row's position among them, and the value sizes of each."""
    shapes, dtypes = rows["shape"].combine_chunks(), rows["dtype"].combine_chunks()
    texts = pc.binary_join(shapes.cast(pa.list_(pa.string())), ",")
    codes = numpy_of(pc.binary_join_element_wise(dtypes, texts, "\0").dictionary_encode().indices)
    _, firsts = np.unique(codes, return_index=True)
    kinds: list[tuple[str, Sequence[int]]] = [(dtypes[row].as_py(), shapes[row].as_py()) for row in firsts.tolist()]
    headers = [digest_header(dtype, tuple(shape)) for dtype, shape in kinds]
    return headers, codes, np.array([_nbytes(*kind) for kind in kinds] or [0], np.int64)


def _nbytes(dtype: str, shape: Sequence[int]) -> int:
    """Return the size of a value in bytes; -1 if no value has this dtype and shape."""
    try:
        nbytes: Any = math.prod(shape) * parse_dtype(dtype).itemsize
    except UnsupportedValue:
        return -1
    return nbytes if min(shape, default=0) >= 0 and nbytes < 1 << 62 else -1
