"""The export into a DuckDB file: `duckdb:///folder/runs.duckdb`, or the path alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from tensortrial.queries import load_view

from ...engines.interrupting import keyboard_interrupts
from ...errors import ConfigurationError, ExportError
from ...format import arrow_arrays
from ..target import LEDGER, Part, Replacement, reader_of
from .sql_target import SQLTarget, ledger_table


class DuckDBFile(SQLTarget):
    """A DuckDB file, in which `scalars` and `reductions` are views. Only one process at a time can write to it."""

    unsigned = True
    _views: ClassVar = {
        view: f"create or replace view {view} as {load_view(view, 'main')}" for view in sorted(SQLTarget.derives)
    }

    def __init__(self, url: str) -> None:
        self._name = url.partition(":")[2].removeprefix("//")
        if self._name in ("", "/", ":memory:"):
            raise ConfigurationError("duckdb: names no file; write duckdb:warehouse.duckdb")
        try:
            # An absolute path, because DuckDB treats the beginning of `sqlite:x` as an extension.
            self._database = duckdb.connect(os.path.abspath(os.path.expanduser(self._name)))
        except duckdb.Error as exc:
            raise ExportError(self._name, f"cannot open it as a DuckDB file for writing: {exc}") from exc

    def write(self, parts: Sequence[Part]) -> None:
        table = parts[0].table
        with self._session():
            self._rewind(parts)
            self._insert(table, reader_of(parts))
            self._insert(LEDGER, ledger_table(parts, table))

    def replace(self, table: str, replacements: Sequence[Replacement]) -> None:
        with self._session():
            self._forget(table, replacements)
            self._insert(table, pa.concat_tables(each.rows for each in replacements))
            self._insert(LEDGER, ledger_table(replacements, table))

    def close(self) -> None:
        self._database.close()

    def _table(self, name: str) -> str:
        return name

    def _fetch(self, query: str, **parameters: str) -> list[tuple[Any, ...]]:
        return self._database.execute(query, parameters or None).fetchall()

    def _wanted_columns(self, schema: pa.Schema) -> dict[str, str]:
        with self._registered(arrow_arrays.table(schema, [])) as rows:
            return self._described(rows)

    def _found_columns(self, table: str) -> dict[str, str]:
        found = self._fetch(
            "select 1 from duckdb_tables() where schema_name = 'main' and table_name = $name", name=table
        )
        return self._described(table) if found else {}

    def _create_table(self, table: str, schema: pa.Schema) -> None:
        with self._registered(arrow_arrays.table(schema, [])) as rows:
            self._fetch(f"create table {table} as from {rows}")

    def _described(self, table: str) -> dict[str, str]:
        return {name: kind for name, kind, *_ in self._fetch(f"describe {table}")}

    def _insert(self, table: str, rows: pa.Table | pa.RecordBatchReader) -> None:
        with self._registered(rows) as new_rows:
            self._fetch(f"insert into {table} from {new_rows}")

    @contextmanager
    def _registered(self, rows: pa.Table | pa.RecordBatchReader) -> Iterator[str]:
        """Register Arrow rows as an SQL table inside the block, and yield its name."""
        self._database.register("new_rows", rows)
        try:
            yield "new_rows"
        except BaseException:
            # In a failed transaction, unregistering fails too, and would hide the reason.
            with suppress(duckdb.Error):
                self._database.unregister("new_rows")
            raise
        self._database.unregister("new_rows")

    @contextmanager
    def _session(self) -> Iterator[None]:
        with keyboard_interrupts():
            self._database.begin()
            try:
                yield
                self._database.commit()
            except BaseException as exc:
                with suppress(duckdb.Error):  # a commit that failed has ended the transaction
                    self._database.rollback()
                if isinstance(exc, duckdb.Error):
                    raise ExportError(self._name, str(exc)) from exc
                raise
