"""Reads parts of the Parquet files of a run, and verifies each part when it is first read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from weakref import WeakKeyDictionary

import pyarrow as pa

from ..storage.base import Blocks, ByteRange, ReadableRanges
from .checksum import BLOCK_BYTES, Seal, read_end, read_seal
from .footer import footer_of, num_rows, schema_of

_BATCH_BLOCKS = 256


@dataclass(frozen=True)
class _Verified:
    """The files of one run that were verified."""

    whole: set[str] = field(default_factory=set)
    """Files that were verified to the last byte."""
    opened: dict[str, tuple[Seal, bytearray]] = field(default_factory=dict)
    """The other files that were read: for each block, whether it was verified."""
    checksums: dict[str, int] = field(default_factory=dict)
    """The checksums of all files that were read."""
    described: dict[str, tuple[pa.Schema, int]] = field(default_factory=dict)
    """The columns and the number of rows of each file for which `described` was called."""


class VerifiedFiles:
    """The Parquet files of one run. Files never change, so each block of a file is verified once.

    Safe to use from several threads. Every method raises CorruptFile, naming the file, for bytes that do not match
    their checksum, and for a file without checksums.
    """

    def __init__(self, storage: ReadableRanges, verified: _Verified) -> None:
        self._storage = storage
        self._whole, self._opened, self._checksums = verified.whole, verified.opened, verified.checksums
        self._described = verified.described

    def size(self, path: str) -> int:
        """Return the file's size in bytes."""
        return self._storage.size(path)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> Blocks:
        """Return the bytes of each range, in the order of `ranges`, as `Storage.read_ranges` does."""
        if all(each.path in self._whole for each in ranges):
            return self._storage.read_ranges(ranges)
        return [self._read(each) for each in ranges]

    def check(self, path: str) -> None:
        """Verify the parts of a file that were not verified before."""
        self.read_end(path)
        if path in self._whole:
            return
        seal, verified = self._opened[path]
        for first in range(0, len(verified), _BATCH_BLOCKS):
            self._verify(seal, verified, first, min(first + _BATCH_BLOCKS, len(verified)), 0)
        self._finish(path)

    def forget(self) -> None:
        """Forget what was verified."""
        for each in (self._whole, self._opened, self._checksums, self._described):
            each.clear()

    def checksum(self, path: str) -> int:
        """Return the checksum that a file was published with.

        Only a copy of the file at the same path has the same one. It verifies the footer; the rest of the file is
        verified when it is read.
        """
        if path not in self._checksums:
            self.read_end(path)
        return self._checksums[path]

    def read_end(self, path: str) -> bytes | bytearray:
        """Return the end of a file with its footer, which was verified. A small file is verified completely."""
        size = self._storage.size(path)
        end = read_end(self._storage, path, size)
        if path not in self._whole and path not in self._opened:
            seal = read_seal(path, end, size)
            self._checksums[path] = seal.checksum
            if len(end) < size:
                self._opened[path] = seal, bytearray(len(seal.sums) // 8)
            else:
                seal.check(end)
                self._whole.add(path)
        return end

    def footer(self, path: str) -> bytes:
        """Return the footer of a file, after it was verified. Raises ValueError for a file that is not Parquet."""
        return footer_of(self.read_end(path))

    def described(self, path: str, schema: pa.Schema) -> tuple[pa.Schema, int]:
        """Return the columns of a file and the number of its rows.

        Raise ValueError for a file that is not Parquet, or lacks columns of the schema.
        """
        if path not in self._described:
            footer = self.footer(path)
            _check_columns(columns := schema_of(footer), schema)
            self._described[path] = columns, num_rows(footer)
        return self._described[path]

    def is_described(self, path: str) -> bool:
        """Return whether `described` was called for a file."""
        return path in self._described

    def _read(self, wanted: ByteRange) -> bytes | bytearray:
        opened = self._open(wanted.path)
        if opened is None:
            (data,) = self._storage.read_ranges([wanted])
            return data
        seal, verified = opened
        first = wanted.start // BLOCK_BYTES
        last = min(-(-wanted.end // BLOCK_BYTES), len(verified))
        if first >= last or all(verified[first:last]):
            (data,) = self._storage.read_ranges([wanted])
            return data
        data = self._verify(seal, verified, first, last, wanted.end)
        if all(verified):
            self._finish(wanted.path)
        begin = wanted.start - first * BLOCK_BYTES
        if isinstance(data, bytearray):  # without a copy: a row group may have a gigabyte
            del data[begin + wanted.length :]
            del data[:begin]
            return data
        return data[begin : begin + wanted.length]

    def _verify(self, seal: Seal, verified: bytearray, first: int, last: int, end: int) -> bytes | bytearray:
        """Read the blocks from `first` to before `last`, and at least until `end`, and verify them."""
        begin = first * BLOCK_BYTES
        end = max(end, min(last * BLOCK_BYTES, seal.nbytes))
        (data,) = self._storage.read_ranges([ByteRange(seal.path, begin, end - begin)])
        seal.check(data, begin)
        verified[first:last] = b"\1" * (last - first)
        return data

    def _finish(self, path: str) -> None:
        self._whole.add(path)
        self._opened.pop(path, None)

    def _open(self, path: str) -> tuple[Seal, bytearray] | None:
        """Return the seal of a file and the mask of its verified blocks; None if all of it was verified."""
        if path not in self._whole and path not in self._opened:
            self.read_end(path)
        return self._opened.get(path)


# Without the storage, which is the key: a value that held it would keep it alive forever.
_verified: WeakKeyDictionary[ReadableRanges, _Verified] = WeakKeyDictionary()


def verified_files(storage: ReadableRanges) -> VerifiedFiles:
    """Return the files of a run. They remember what was verified for as long as the storage is used."""
    found = _verified.get(storage)
    if found is None:
        found = _verified[storage] = _Verified()
    return VerifiedFiles(storage, found)


@lru_cache(maxsize=16)
def _check_columns(found: pa.Schema, expected: pa.Schema) -> None:
    """Raise ValueError if a column is missing, or of another type."""
    for each in expected:
        if each.name not in found.names:
            raise ValueError(f"it has no column {each.name}")
        if (kind := found.field(each.name).type) != each.type:
            raise ValueError(f"its column {each.name} is {kind}, not {each.type}")
