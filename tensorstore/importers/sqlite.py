"""A reader of other programs' SQLite files, which may be damaged, malicious or still written to."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from ..errors import ConfigurationError, CorruptFile, RunNotFound, StorageError

_MAGIC = b"SQLite format 3\0"
_VERSIONS, _WAL = slice(18, 20), 2
"""The bytes of the file format versions for writing and reading, and their value with a write-ahead log."""
ENDINGS = (".db", ".sqlite", ".sqlite3")


def local_file(source: str | os.PathLike[str]) -> Path:
    """Return the path of an SQLite file. Raises ConfigurationError for a URL, RunNotFound if it is missing."""
    text = os.fspath(source)
    if "://" in text:
        raise ConfigurationError(f"an SQLite file can be read from a disk only: copy {text} to one")
    path = Path(text).absolute()
    if not path.is_file():
        raise RunNotFound(str(path), "there is no such file")
    return path


def is_sqlite(source: str | os.PathLike[str]) -> bool:
    """Return whether a path is an SQLite file, by its suffix or by the first bytes of the file."""
    text = os.fspath(source)
    if text.lower().endswith(ENDINGS):
        return True
    try:
        if not os.path.isfile(text):  # to open a named pipe is to wait for its writer
            return False
        with open(text, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


class Database:
    """An SQLite file that is opened read-only.

    Args:
        kind: The kind of file that it should be, for messages.
        tables: The columns that are needed, by table.

    Raises:
        CorruptFile: It is not an SQLite file, or lacks a table or a column.
        StorageError: It cannot be opened.
    """

    def __init__(self, path: Path, kind: str, tables: Mapping[str, Sequence[str]]) -> None:
        self.path = str(path)
        with self._errors():
            with path.open("rb") as file:
                head = file.read(len(_MAGIC))
            if head != _MAGIC:
                raise CorruptFile(self.path, "this is not an SQLite file")
            self._copy: TemporaryDirectory[str] | None = None
            try:
                self._open(path)
            except sqlite3.OperationalError:
                if not self._lacks_shared_memory(path):
                    raise
                self._open(self._copied(path))
        for table, columns in tables.items():
            missing = [column for column in columns if column not in self.columns.get(table, ())]
            if missing:
                self.close()
                what = f"the column {missing[0]!r} of the table" if table in self.columns else "the table"
                raise CorruptFile(self.path, f"this is not {kind}: it lacks {what} {table!r}")

    def rows(self, sql: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a SELECT. Raises CorruptFile where the file is damaged."""
        with self._errors():
            yield from self._connection.execute(sql, parameters)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
        if self._copy is not None:
            self._copy.cleanup()

    def _open(self, path: Path) -> None:
        # Read-only. Another program may write meanwhile: each statement reads one state.
        self._connection = sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro", uri=True, timeout=10)
        self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
        self._connection.execute("PRAGMA trusted_schema = OFF")
        self._connection.execute("PRAGMA cell_size_check = ON")
        self.columns = self._columns()

    def _lacks_shared_memory(self, path: Path) -> bool:
        """Return whether SQLite's shared-memory file, which it needs to read a write-ahead log, is missing.

        SQLite cannot create it in a read-only folder.
        """
        with path.open("rb") as file:
            versions = file.read(_VERSIONS.stop)[_VERSIONS]
        return _WAL in versions and not Path(f"{path}-shm").is_file()

    def _copied(self, path: Path) -> Path:
        """Return a copy of a file and of its log."""
        self._connection.close()
        self._copy = TemporaryDirectory(prefix="tensortrial-")
        for name in (path.name, f"{path.name}-wal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(path.with_name(name), Path(self._copy.name, name))
        return Path(self._copy.name, path.name)

    def _columns(self) -> dict[str, list[str]]:
        # Real tables only: a view would run SQL of the file.
        tables = self._connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        ).fetchall()
        info = "SELECT name FROM pragma_table_info(?)"
        return {name: [column for (column,) in self._connection.execute(info, (name,))] for (name,) in tables}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as exc:
            raise StorageError(
                self.path, f"SQLite cannot read it: {exc}; if another program uses it, try again"
            ) from exc
        except (sqlite3.Error, OverflowError) as exc:
            raise CorruptFile(self.path, f"SQLite cannot read it: {exc}") from exc
        except OSError as exc:
            raise StorageError(self.path, f"it cannot be read: {exc.strerror}") from exc
