"""A connection to DuckDB that can read some runs, and nothing else: no other file, no network, no extension.

Only this module and the two that ask it import duckdb: `catalogue` for one run, `runs` for many.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Sequence
from typing import Any

import duckdb

from .errors import QueryError, QueryRefused
from .schema import FINDINGS, INDEX, TENSORS
from .storage import Storage

_open: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection:
    """A database in memory, and what may be asked of it. Not to be used from two threads at once."""

    def __init__(self, storages: Sequence[Storage]) -> None:
        self.duckdb = duckdb.connect(":memory:")
        filesystems: dict[str, Any] = {}
        for storage in storages:
            filesystem = storage.duckdb_filesystem
            if filesystem is not None:
                known = filesystems.get(filesystem.protocol)
                filesystems[filesystem.protocol] = known.joined(filesystem) if known else filesystem
        for filesystem in filesystems.values():
            self.duckdb.register_filesystem(filesystem)
        self._lock_down(storages)
        _open.add(self)

    def _lock_down(self, storages: Sequence[Storage]) -> None:
        # DuckDB checks a path as a pattern and as it is: `uri` escapes brackets and stars, the url has them plain.
        rooms = [(storage, room) for storage in storages for room in (INDEX, TENSORS, FINDINGS)]
        folders = {f"{base}/" for storage, room in rooms for base in (storage.uri(room), f"{storage.url}/{room}")}
        # SET takes no parameters; a list literal with doubled quotes holds any path.
        quoted = ", ".join("'" + folder.replace("'", "''") + "'" for folder in sorted(folders))
        for statement in (
            "set temp_directory = ''",
            f"set allowed_directories = [{quoted}]",
            # Otherwise a query could read the variables of the Python program by their names.
            "set python_enable_replacements = false",
            "set enable_external_access = false",
            "set lock_configuration = true",
        ):
            self.duckdb.execute(statement)

    def sql(self, query: str, parameters: dict[str, Any] | None = None) -> duckdb.DuckDBPyRelation:
        """The answer to a user's query on the views that there are. Raises QueryRefused for anything but one SELECT,
        and QueryError for one that DuckDB cannot run."""
        # A cursor of its own: a relation is evaluated lazily, while others go on asking.
        cursor = self.duckdb.cursor()
        _refuse_all_but_select(cursor, query)
        try:
            return cursor.sql(query, params=parameters)
        except duckdb.PermissionException as exc:
            raise QueryRefused(f"a query can read the views of its run, and nothing else: {exc}") from exc
        except duckdb.Error as exc:
            raise QueryError(str(exc)) from exc

    def close(self) -> None:
        self.duckdb.close()


@atexit.register
def _close_all() -> None:
    # DuckDB complains at length of a connection with a filesystem that outlives the interpreter.
    for connection in list(_open):
        connection.close()


def _refuse_all_but_select(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as exc:
        raise QueryError(f"this is not SQL that DuckDB understands: {exc}") from exc
    kinds = [statement.type for statement in statements]
    if kinds != [duckdb.StatementType.SELECT]:
        found = ", ".join(str(kind).rpartition(".")[2] for kind in kinds) or "nothing"
        raise QueryRefused(f"only one SELECT is run on a run's views, and this is {found}: {query.strip()[:200]!r}")
