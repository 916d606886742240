"""Writes the Parquet file of a chunk: few distinct values in every column but one, and bytes in that one.

pyarrow writes such a file at 0.6 of the speed of the disk, because it copies each value twice on its way into a page.
Here a large value goes to the file from where it lies, and where it went is known as it goes. Everything else about
Parquet, reading first of all, is pyarrow's.

https://github.com/apache/parquet-format: README.md, Encodings.md, src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from . import __version__
from .thrift import I64, Struct, varint

MAGIC = b"PAR1"
LENGTH_PREFIX = 4
"""Bytes before each value of a binary column: its length, little-endian."""

# parquet.thrift's enumerations.
_INT32, _INT64, _BYTE_ARRAY = 1, 2, 6
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_UTF8, _LIST = 0, 3
_PLAIN, _RLE, _RLE_DICTIONARY = 0, 3, 8
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_CODECS = {"none": (0, None), "lz4": (7, "lz4_raw"), "zstd": (6, "zstd")}

# Longer texts have no statistics: they would weigh more than they save.
_LONGEST_STATISTIC = 64
# Below this, values are joined before they are written: a copy costs less than a call of the operating system.
_JOINED_BYTES = 64 << 10

# The levels of lists of no entry, of one, and so on, as far as shapes go.
_FIRST = [[0], *([0] + [1] * more for more in range(8))]
_FULL = [[0], *([2] * count for count in range(1, 9))]


class File(Protocol):
    def write(self, data: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the file. Every value is there: nothing is null."""

    name: str
    kind: type[str] | type[int] | type[tuple[int, ...]] | type[bytes]
    bits: int = 64
    """Of an int column: 32 or 64."""

    @property
    def physical(self) -> int:
        if self.kind is int:
            return _INT64 if self.bits == 64 else _INT32
        return _INT64 if self.kind is tuple else _BYTE_ARRAY

    @property
    def path(self) -> list[bytes]:
        name = self.name.encode()
        return [name, b"list", b"element"] if self.kind is tuple else [name]

    def schema(self) -> list[Struct]:
        """The SchemaElements: a list of numbers has three, one in the other."""
        name = self.name.encode()
        if self.kind is tuple:
            return [
                Struct({3: _REQUIRED, 4: name, 5: 1, 6: _LIST, 10: Struct({3: Struct()})}),
                Struct({3: _REPEATED, 4: b"list", 5: 1}),
                Struct({1: _INT64, 3: _OPTIONAL, 4: b"element"}),
            ]
        if self.kind is str:
            return [Struct({1: _BYTE_ARRAY, 3: _REQUIRED, 4: name, 6: _UTF8, 10: Struct({1: Struct()})})]
        return [Struct({1: self.physical, 3: _REQUIRED, 4: name})]


class ParquetWriter:
    """Writes row groups of `columns`, the last of which is of bytes, to a file."""

    def __init__(self, file: File, columns: Sequence[Column], codec: str = "none") -> None:
        self._file = file
        self._columns = columns
        self._codec, name = _CODECS[codec]
        self._compressor = None if name is None else pa.Codec(name)
        self._position = 0
        self._small = bytearray()
        self._rows = 0
        self._row_groups: list[Struct] = []
        self._write(MAGIC)

    def write_row_group(self, rows: Sequence[Sequence[Any]], values: Sequence[memoryview]) -> list[int] | None:
        """Write one row group: for each column but the last its cells, and the bytes of the last.

        Gives the position of each value in the file; None if they are compressed.
        """
        begun = self._position
        chunks = [self._write_cells(column, cells) for column, cells in zip(self._columns[:-1], rows, strict=True)]
        chunk, positions = self._write_values(self._columns[-1], values)
        size = self._position - begun
        self._row_groups.append(Struct({1: [*chunks, chunk], 2: I64(size), 3: I64(len(values))}))
        self._rows += len(values)
        return positions

    def close(self) -> None:
        """Write the footer. The file is the caller's to close."""
        schema = [Struct({4: b"schema", 5: len(self._columns)})]
        footer = Struct(
            {
                1: 2,
                2: [*schema, *(element for column in self._columns for element in column.schema())],
                3: I64(self._rows),
                4: self._row_groups,
                6: f"tensortrial version {__version__}".encode(),
                # That minimum and maximum are meant in the order of each type.
                7: [Struct({1: Struct()}) for _ in self._columns],
            }
        ).to_bytes()
        self._write(footer + struct.pack("<i", len(footer)) + MAGIC)
        self._flush()

    def _write(self, data: bytes | memoryview) -> None:
        """Append to the file: a large piece as it lies in memory, small ones joined."""
        self._position += len(data)
        if len(data) < _JOINED_BYTES:
            self._small += data
        else:
            self._flush()
            self._file.write(data)

    def _flush(self) -> None:
        if self._small:
            self._file.write(bytes(self._small))
            self._small.clear()

    # Columns of few distinct values: a page of those, and a page that refers to them.

    def _write_cells(self, column: Column, cells: Sequence[Any]) -> Struct:
        begun = self._position
        levels = b""
        entries = len(cells)
        if column.kind is tuple:
            levels, entries = _list_levels(cells)
            cells = [number for cell in cells for number in cell]
        distinct, places = _distinct(cells)
        dictionary = _plain(column, distinct)
        header = Struct(
            {1: _DICTIONARY_PAGE, 2: len(dictionary), 3: len(dictionary), 7: Struct({1: len(distinct), 2: _PLAIN})}
        )
        self._write(header.to_bytes() + dictionary)
        width = max(1, (len(distinct) - 1).bit_length())
        data_page = self._position
        page = levels + bytes([width]) + _packed(places, width)
        self._write(_data_page_header(len(page), len(page), entries, _RLE_DICTIONARY) + page)
        return self._chunk(
            column, begun, entries, [_PLAIN, _RLE, _RLE_DICTIONARY], data_page, begun, _statistics(column, distinct)
        )

    # The column of bytes: one page, in which each value stands as it is, after its length.

    def _write_values(self, column: Column, values: Sequence[memoryview]) -> tuple[Struct, list[int] | None]:
        begun = self._position
        size = sum(map(len, values)) + LENGTH_PREFIX * len(values)
        positions = None
        if self._compressor is None:
            self._write(_data_page_header(size, size, len(values), _PLAIN))
            positions = self._write_plainly(values)
        else:
            page = self._compressor.compress(b"".join(_prefixed(values)), asbytes=True)
            self._write(_data_page_header(size, len(page), len(values), _PLAIN) + page)
        shrunk = 0 if self._compressor is None else size - len(page)
        chunk = self._chunk(column, begun, len(values), [_PLAIN, _RLE], begun, None, None, self._codec, shrunk)
        return chunk, positions

    def _write_plainly(self, values: Sequence[memoryview]) -> list[int]:
        positions = []
        position = self._position
        for value in values:
            positions.append(position + LENGTH_PREFIX)
            position += LENGTH_PREFIX + len(value)
        if position - self._position < _JOINED_BYTES * len(values):
            # Many small values: one join beats a call for each.
            self._flush()
            self._file.write(b"".join(_prefixed(values)))
            self._position = position
        else:
            for piece in _prefixed(values):
                self._write(piece)
        return positions

    def _chunk(
        self,
        column: Column,
        begun: int,
        entries: int,
        encodings: list[int],
        data_page: int,
        dictionary_page: int | None,
        statistics: Struct | None,
        codec: int = 0,
        shrunk: int = 0,
    ) -> Struct:
        """The ColumnChunk that ends here."""
        size = self._position - begun
        metadata = Struct(
            {
                1: column.physical,
                2: encodings,
                3: column.path,
                4: codec,
                5: I64(entries),
                6: I64(size + shrunk),
                7: I64(size),
                9: I64(data_page),
                11: None if dictionary_page is None else I64(dictionary_page),
                12: statistics,
            }
        )
        return Struct({2: I64(begun), 3: metadata})


def _data_page_header(size: int, compressed: int, entries: int, encoding: int) -> bytes:
    header = Struct({1: entries, 2: encoding, 3: _RLE, 4: _RLE})
    return Struct({1: _DATA_PAGE, 2: size, 3: compressed, 5: header}).to_bytes()


def _prefixed(values: Sequence[memoryview]) -> list[bytes | memoryview]:
    pieces: list[bytes | memoryview] = []
    for value in values:
        pieces += (struct.pack("<i", len(value)), value)
    return pieces


def _distinct(cells: Sequence[Hashable]) -> tuple[list[Any], list[int]]:
    """The distinct cells in the order they first come, and for each cell its place among them."""
    places: dict[Hashable, int] = {}
    found = [places.setdefault(cell, len(places)) for cell in cells]
    return list(places), found


def _plain(column: Column, cells: Sequence[Any]) -> bytes:
    if column.kind is str:
        texts = [cell.encode() for cell in cells]
        return b"".join(struct.pack("<i", len(text)) + text for text in texts)
    return struct.pack(f"<{len(cells)}{'q' if column.physical == _INT64 else 'i'}", *cells)


def _packed(numbers: Sequence[int], width: int) -> bytes:
    """Numbers of `width` bits as one bit-packed run of the hybrid encoding, which holds a multiple of eight."""
    groups = -(-len(numbers) // 8)
    padded = np.zeros(groups * 8, np.uint32)
    padded[: len(numbers)] = numbers
    bits = (padded[:, None] >> np.arange(width, dtype=np.uint32)) & 1
    return varint(groups << 1 | 1) + np.packbits(bits.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def _list_levels(cells: Sequence[Sequence[int]]) -> tuple[bytes, int]:
    """The repetition and definition levels of lists, and how many entries they are: an empty list is one, too."""
    repetition: list[int] = []
    definition: list[int] = []
    for cell in cells:
        repetition += _FIRST[len(cell)] if len(cell) < len(_FIRST) else [0] + [1] * (len(cell) - 1)
        definition += _FULL[len(cell)] if len(cell) < len(_FULL) else [2] * len(cell)
    levels = [_packed(repetition, 1), _packed(definition, 2)]
    return b"".join(struct.pack("<i", len(level)) + level for level in levels), len(repetition)


def _statistics(column: Column, distinct: Sequence[Any]) -> Struct | None:
    """Minimum and maximum, by which an engine leaves out row groups."""
    if column.kind is tuple or not distinct:
        return None
    # Texts are ordered by their bytes, and str's order by code points is the same.
    prefix = LENGTH_PREFIX if column.kind is str else 0
    lowest, highest = (_plain(column, [cell])[prefix:] for cell in (min(distinct), max(distinct)))
    if max(len(lowest), len(highest)) > _LONGEST_STATISTIC:
        return None
    return Struct({3: I64(0), 5: highest, 6: lowest})
