"""Checksums of the files of a run: the seal of a Parquet file, and the checksum of a JSON document.

A seal stands between the pages of a Parquet file and its footer, where no Parquet reader looks. It has a checksum of
each block of the pages, so that a part of a large file can be verified alone, and one checksum of the rest. The bytes
are verified before they are parsed. `docs/format.md` has the layout.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from ..errors import ConfigurationError, CorruptFile
from ..storage.base import DOCUMENT_BYTES, ByteRange, FileSource, ReadableRanges

BLOCK_BYTES = 64 << 10
"""The size of a block of a file, in bytes; its last block may be smaller."""
MAGIC = b"PAR1"
"""The last bytes of a Parquet file."""
AFTER_FOOTER = 4 + len(MAGIC)
"""The number of bytes after the footer: its length, and MAGIC."""
TAIL_BYTES = 64 << 10
"""Enough for most footers and seals, and all of a small file."""

_PASSING_BYTES = 8 * BLOCK_BYTES
_MARKER = b"SUM1"
_SUM = 8
_END = _SUM + 4 + len(_MARKER)
"""The checksum of the seal, its length and the marker."""

_CHECKSUM_OF_DOCUMENT = re.compile(rb'"checksum": "([0-9a-f]{16})"\s*\}\s*\Z')
_NO_CHECKSUM = "0" * 16
# Halves of surrogate pairs, which UTF-8 cannot encode. Python uses them for bytes that are not UTF-8.
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
CHECKSUM = "checksum"
"""The key of a JSON document's checksum. It comes last."""
DAMAGED_OR_EDITED = (
    f"it does not match its checksum: it is damaged, or was edited; after an edit, remove the key {CHECKSUM!r}"
)

Bytes: TypeAlias = bytes | bytearray | memoryview


class Seal(NamedTuple):
    """The checksums of one Parquet file, whose footer agrees with them."""

    path: str
    """The file, relative to the run, for messages."""
    nbytes: int
    """The number of bytes of pages before the seal."""
    sums: bytes
    """The checksum of each block: 8 bytes each, little-endian."""
    checksum: int
    """XXH3_64 of the seal, the footer and the path. No other file of the run has it."""

    def check(self, data: Bytes, start: int = 0) -> None:
        """Raise CorruptFile unless these blocks match their checksums.

        Args:
            data: Whole blocks, one after another. Bytes after the last block of the file are ignored.
            start: Where in the file they begin, in bytes: a multiple of BLOCK_BYTES.
        """
        view = memoryview(data)[: max(0, self.nbytes - start)]
        first = start // BLOCK_BYTES
        found = block_sums(view)
        if found != self.sums[first * _SUM : first * _SUM + len(found)]:
            bad = first + next(
                number
                for number in range(len(found) // _SUM)
                if found[number * _SUM : number * _SUM + _SUM] != self.sums[(first + number) * _SUM :][:_SUM]
            )
            end = min((bad + 1) * BLOCK_BYTES, self.nbytes)
            raise CorruptFile(
                self.path, f"bytes {bad * BLOCK_BYTES} to {end} do not match their checksum: the file is damaged"
            )


def block_sums(data: Bytes) -> bytes:
    """Return the checksum of each block of `data`: 8 bytes each, little-endian."""
    view = memoryview(data)
    sums = [xxh3_64_intdigest(view[begin : begin + BLOCK_BYTES]) for begin in range(0, len(view), BLOCK_BYTES)]
    return struct.pack(f"<{len(sums)}Q", *sums)


class BlockSums:
    """The checksums of the blocks of a file, computed while it is written."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._sums: list[bytes] = []

    def passing(self, pieces: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
        """Add the next bytes of the file to the sums and yield them, in pieces that fit into the processor's cache."""
        for piece in pieces:
            view = memoryview(piece)
            for begin in range(0, len(view), _PASSING_BYTES):
                passing = view[begin : begin + _PASSING_BYTES]
                self._append(passing)
                yield passing

    def _append(self, view: memoryview) -> None:
        if self._rest or len(view) < BLOCK_BYTES:
            # Small pieces are copied together: a copy takes less time than a call for each.
            missing = BLOCK_BYTES - len(self._rest)
            self._rest += view[:missing]
            view = view[missing:]
            if len(self._rest) < BLOCK_BYTES:
                return
            self._sums.append(block_sums(self._rest))
            self._rest = bytearray()
        whole = len(view) - len(view) % BLOCK_BYTES
        self._sums.append(block_sums(view[:whole]))
        self._rest += view[whole:]

    def finish(self) -> bytes:
        """Return the checksum of each block: 8 bytes each, little-endian."""
        return b"".join([*self._sums, block_sums(self._rest)])


def make_seal(path: str, sums: bytes, end: Bytes) -> bytes:
    """Return the seal of a Parquet file that is published at `path`, relative to the run.

    `sums` are from `block_sums`, and `end` follows the seal: the footer, its length and PAR1.
    """
    head = sums + _sum_of_path(path)
    tail = struct.pack("<I", len(head) + _END) + _MARKER
    return head + struct.pack("<Q", xxh3_64_intdigest(b"".join((head, tail, end)))) + tail


def sealed(path: str, file: Bytes) -> list[bytes | memoryview]:
    """Return the pieces of a Parquet file with its seal. `path`, relative to the run, is where it is published."""
    view = memoryview(file)
    footer = len(view) - AFTER_FOOTER - int.from_bytes(view[-AFTER_FOOTER:-4], "little")
    return [view[:footer], make_seal(path, block_sums(view[:footer]), view[footer:]), view[footer:]]


def seal_needs(end: Bytes, size: int) -> int:
    """Return an upper bound for the bytes of seal and footer in a Parquet file of `size` bytes.

    `end` is any end of the file of at least 8 bytes.
    """
    after = int.from_bytes(end[-AFTER_FOOTER:-4], "little") + AFTER_FOOTER
    blocks = -(-max(0, size - after) // (BLOCK_BYTES + _SUM))
    return min(size, after + blocks * _SUM + _SUM + _END)


def read_ends(source: FileSource, paths: Sequence[str]) -> Iterator[tuple[bytes, int] | Exception]:
    """Yield the end of each Parquet file, with its seal and footer, and its size in bytes; or why it cannot be read."""
    for path, end in zip(paths, source.read_tails(paths, TAIL_BYTES), strict=True):
        if isinstance(end, Exception) or (needed := seal_needs(*end)) <= len(end[0]):
            yield end
        else:
            yield from source.read_tails([path], needed)


def read_end(files: ReadableRanges, path: str, size: int) -> bytes | bytearray:
    """Return the end of a Parquet file of `size` bytes, with its seal and footer."""
    length = min(size, TAIL_BYTES)
    (end,) = files.read_ranges([ByteRange(path, size - length, length)])
    if (needed := seal_needs(end, size)) > length:
        (end,) = files.read_ranges([ByteRange(path, size - needed, needed)])
    return end


def read_seal(path: str, end: Bytes, size: int) -> Seal:
    """Verify the footer of a Parquet file by its seal, and return the seal.

    Args:
        path: The path of the file, relative to the run.
        end: The end of the file: at least `seal_needs` bytes.
        size: The size of the file, in bytes.

    Raises:
        CorruptFile: The footer is damaged, the file has no seal, or was published at another path.
    """
    view = memoryview(end)
    if len(view) < AFTER_FOOTER or view[-len(MAGIC) :] != MAGIC:
        raise CorruptFile(path, f"its {size} bytes do not end like a Parquet file: it is truncated, or not one")
    footer = len(view) - AFTER_FOOTER - int.from_bytes(view[-AFTER_FOOTER:-4], "little")
    if footer < _END or view[footer - len(_MARKER) : footer] != _MARKER:
        raise CorruptFile(path, "its checksums are not before its footer: it is damaged, or no file of a run")
    length = int.from_bytes(view[footer - 8 : footer - 4], "little")
    begin = footer - length
    nbytes = size - len(view) + begin
    sums = length - _SUM - _END
    if begin < 0 or nbytes < 0 or sums != -(-nbytes // BLOCK_BYTES) * _SUM:
        raise CorruptFile(path, "it has another number of checksums than of blocks: the file is damaged")
    head, after = view[begin : begin + sums + _SUM], view[footer - 8 :]
    checksum = xxh3_64_intdigest(b"".join((head, after)))
    if checksum != int.from_bytes(view[footer - _END : footer - 8], "little"):
        raise CorruptFile(path, "its footer does not match its checksum: the file is damaged")
    if head[sums:] != _sum_of_path(path):
        raise CorruptFile(path, "its checksum belongs to a file with another path: it was renamed, or exchanged")
    return Seal(path, nbytes, bytes(head[:sums]), checksum)


def check_file(path: str, data: Bytes) -> Seal:
    """Verify all bytes of a Parquet file by its seal, and return the seal. Raises CorruptFile; see `read_seal`."""
    seal = read_seal(path, data, len(data))
    seal.check(data)
    return seal


def _sum_of_path(path: str) -> bytes:
    return struct.pack("<Q", xxh3_64_intdigest(path.encode(errors="surrogateescape")))


# JSON documents.


def document_bytes(document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON document, with the key `checksum` last. A dataclass in it becomes an object.

    A lone surrogate, which no reader could decode, is written as the six characters of its escape sequence.

    Raises:
        ConfigurationError: It is larger than what readers accept.
    """
    rest = {key: value for key, value in document.items() if key != CHECKSUM}
    dumped = _dump({**rest, CHECKSUM: _NO_CHECKSUM})
    if "\\ud" in dumped:
        # Perhaps half of a pair.
        plain = _LONE_SURROGATES.sub(lambda half: f"\\\\u{ord(half[0]):04x}", json.dumps(rest, ensure_ascii=False))
        dumped = _dump({**json.loads(plain), CHECKSUM: _NO_CHECKSUM})
    text = dumped.encode()
    if len(text) > DOCUMENT_BYTES:
        reason = f"a document of a run may have {DOCUMENT_BYTES:,} bytes, got {len(text):,}; keep less metadata"
        raise ConfigurationError(reason)
    found = _CHECKSUM_OF_DOCUMENT.search(text)
    assert found is not None
    return text[: found.start(1)] + xxh3_64_hexdigest(text).encode() + text[found.end(1) :]


def _dump(document: Mapping[str, Any]) -> str:
    # One item a line, for people. json's `indent` takes eight times as long, because it then works in Python only.
    return json.dumps(document, separators=(",\n ", ": "), default=vars)


def check_document(data: bytes) -> bool:
    """Verify a JSON document by its checksum. Return False if it has none as its last key.

    Raises:
        ValueError: It does not match its checksum.
    """
    found = _CHECKSUM_OF_DOCUMENT.search(data, max(0, len(data) - 256))
    if found is None:
        return False
    if xxh3_64_hexdigest(data[: found.start(1)] + _NO_CHECKSUM.encode() + data[found.end(1) :]).encode() != found[1]:
        raise ValueError(DAMAGED_OR_EDITED)
    return True
