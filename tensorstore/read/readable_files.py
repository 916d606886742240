"""Checks that an engine can read Parquet files of a run: one bad file makes a view over many useless."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ..errors import CorruptFile, FileError, MissingChunk
from ..format.footer import footer_length, footer_of, schema_of
from ..storage.open import ByteRange, Storage

_TAIL_BYTES = 64 << 10
"""Enough for most footers."""
_MISSING = "the index names this file, and it is missing"


class ReadableFiles:
    """Parquet files of one run, each of whose footers is read once: published files never change."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._whole: set[str] = set()

    def check(self, paths: Sequence[str], schema: pa.Schema) -> Iterator[tuple[str, FileError | None]]:
        """Yield each file with its error, if it has one: it is missing, not Parquet, or lacks columns of `schema`."""
        # The footers of new files are read next by the engine: of a remote file they come along.
        length = 8 if self._storage.is_local and self._whole.issuperset(paths) else _TAIL_BYTES
        for path, tail in zip(paths, self._storage.read_tails(paths, length), strict=True):
            if isinstance(tail, FileNotFoundError):
                yield path, MissingChunk(path, _MISSING)
            elif isinstance(tail, Exception):
                yield path, tail if isinstance(tail, FileError) else CorruptFile(path, f"it cannot be read: {tail}")
            else:
                yield path, None if path in self._whole else self._damage(path, *tail, schema)

    def check_new(self, paths: Sequence[str], schema: pa.Schema) -> Iterator[tuple[str, FileError | None]]:
        """Yield the same, without checking again the files that were found whole before.

        The ends of new files that are in the cache are not fetched again: a query reads all of them next.
        """
        new = [path for path in paths if path not in self._whole]
        self._storage.prefetch(new)
        damage = {path: self._damage_of_new(path, schema) for path in new}
        yield from ((path, damage.get(path)) for path in paths)

    def _damage_of_new(self, path: str, schema: pa.Schema) -> FileError | None:
        try:
            size = self._storage.size(path)
            tail = self._storage.read_ranges([ByteRange(path, max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES))])[0]
        except FileNotFoundError:
            return MissingChunk(path, _MISSING)
        except FileError as exc:
            return exc
        return self._damage(path, bytes(tail), size, schema)

    def _damage(self, path: str, tail: bytes, size: int, schema: pa.Schema) -> FileError | None:
        try:
            needed = footer_length(tail) + 8
            if len(tail) < needed <= size:
                tail, _ = self._storage.read_tail(path, needed)
            _check_columns(schema_of(footer_of(tail)), schema)
        except ValueError as exc:
            return CorruptFile(path, f"an engine cannot read this file: {exc}")
        except FileNotFoundError:
            return MissingChunk(path, _MISSING)
        self._whole.add(path)
        return None


def _check_columns(found: pa.Schema, expected: pa.Schema) -> None:
    for field in expected:
        if field.name not in found.names:
            if not field.nullable:
                raise ValueError(f"it has no column {field.name}")
        elif (kind := found.field(field.name).type) != field.type:
            raise ValueError(f"its column {field.name} is {kind}, not {field.type}")
