"""Checks that an engine can read Parquet files of a run: one bad file makes a view over many useless."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from ...errors import CorruptFile, FileError, MissingChunk
from ...format.footer import footer_of, num_rows, schema_of
from ...format.verified_files import verified_files
from ...storage.open import Storage

_TAIL_BYTES = 64 << 10
"""Enough for most footers."""
_WHOLE_BYTES = 4 << 20
"""A larger remote file is verified part by part, as an engine reads it."""
CheckedFiles = Sequence[tuple[str, FileError | None]]
"""Files, each with the error for which it cannot be read."""
_MISSING = "the index names this file, and it is missing"


class ReadableFiles:
    """Parquet files of one run, each of which is verified once: published files never change."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files = verified_files(storage)
        self._readable: set[str] = set()
        self.num_rows: dict[str, int] = {}
        """The facts about each file that was found readable."""

    def check(self, paths: Sequence[str], schema: pa.Schema) -> CheckedFiles:
        """Return each file with its error, if it has one: it is missing or damaged, or lacks columns of `schema`.

        The footer is verified, and all of a small file. An engine reads the rest through `VerifiedFiles`.
        """
        # The footers of new files are read next: of a remote file they come along.
        length = 8 if self._storage.is_local or self._readable.issuperset(paths) else _TAIL_BYTES
        tails = self._storage.read_tails(paths, length)
        return [(path, self._error(path, tail, schema)) for path, tail in zip(paths, tails, strict=True)]

    def _error(self, path: str, tail: object, schema: pa.Schema) -> FileError | None:
        if isinstance(tail, FileNotFoundError):
            return MissingChunk(path, _MISSING)
        if isinstance(tail, Exception):
            return tail if isinstance(tail, FileError) else CorruptFile(path, f"it cannot be read: {tail}")
        return None if path in self._readable else self._damage(path, schema)

    def check_new(self, paths: Sequence[str], schema: pa.Schema) -> CheckedFiles:
        """Return the same, without checking again the files that were found readable before.

        New files are verified as a whole, unless they are large and remote: a query reads all of them next, and one
        that is damaged must not be among them. What is in the cache is not fetched again.
        """
        new = [path for path in paths if path not in self._readable]
        self._storage.prefetch(new)
        damage = {path: self._damage(path, schema, whole=True) for path in new}
        return [(path, damage.get(path)) for path in paths]

    def _damage(self, path: str, schema: pa.Schema, whole: bool = False) -> FileError | None:
        try:
            footer = footer_of(self._files.read_end(path))
            _check_columns(schema_of(footer), schema)
            self.num_rows[path] = num_rows(footer)
            if whole and (self._storage.is_local or self._storage.size(path) <= _WHOLE_BYTES):
                self._files.check(path)
        except FileNotFoundError:
            return MissingChunk(path, _MISSING)
        except FileError as exc:
            return exc
        except ValueError as exc:
            return CorruptFile(path, f"an engine cannot read this file: {exc}")
        self._readable.add(path)
        return None


@lru_cache(maxsize=16)
def _check_columns(found: pa.Schema, expected: pa.Schema) -> None:
    for field in expected:
        if field.name not in found.names:
            raise ValueError(f"it has no column {field.name}")
        if (kind := found.field(field.name).type) != field.type:
            raise ValueError(f"its column {field.name} is {kind}, not {field.type}")
