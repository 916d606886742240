"""A reader of Aim's databases, which may be damaged or still written to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...errors import CorruptFile, importing
from .encoding import Part, decode_path, decode_value, encode_path

# Aim keeps large values here, below their keys.
_LARGE = b"BLOBS\xfe"


class RocksDB:
    """A RocksDB database that is opened read-only: nothing is written into its folder.

    Raises:
        CorruptFile: RocksDB cannot open it.
        MissingExtra: aimrocks is not installed.
    """

    def __init__(self, path: Path) -> None:
        with importing("aimrocks", "aim", "an import from Aim"):
            import aimrocks
            from aimrocks import errors
        self.path = str(path)
        self._logs = TemporaryDirectory(prefix="tensortrial-")
        self._errors = (
            errors.Corruption,
            errors.Incomplete,
            errors.InvalidArgument,
            errors.NotFound,
            errors.NotSupported,
            errors.RocksIOError,
        )
        # All files are opened now, because a program that writes may remove them later.
        options = aimrocks.Options(db_log_dir=self._logs.name, max_open_files=-1, create_if_missing=False)
        try:
            self._database: Any = aimrocks.DB(self.path, options, read_only=True)
        except self._errors as exc:
            self._logs.cleanup()
            raise CorruptFile(self.path, f"RocksDB cannot read it: {exc}") from exc

    def below(self, *path: Part) -> Iterator[tuple[tuple[Part, ...], Any]]:
        """Yield the values below a path with the rest of their paths, in the order of their keys.

        Raises:
            CorruptFile: The database is damaged.
        """
        prefix = encode_path(*path)
        rows = self._database.iteritems()
        rows.seek(prefix)
        for key, value in self._read(rows):
            if not key.startswith(prefix):
                return
            try:
                yield decode_path(key[len(prefix) :]), decode_value(value)
            except ValueError as exc:
                raise CorruptFile(self.path, str(exc)) from exc

    def large(self, *path: Part) -> bytes | None:
        """Return the bytes that are kept at a path; None if there are none."""
        value = self._database.get(_LARGE + encode_path(*path))
        return value[1:] if value and value[0] == 5 else None

    def close(self) -> None:
        """Close it."""
        self._database = None
        self._logs.cleanup()

    def _read(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except self._errors as exc:
                raise CorruptFile(self.path, f"RocksDB cannot read it: {exc}") from exc
            yield row
