"""Export into a DuckDB file: `duckdb:///folder/runs.duckdb`, or the path alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa

from tensortrial.queries import load_view

from ..errors import ConfigurationError, ExportError, TableMismatch
from .target import LEDGER, LEDGER_SCHEMA, Held, Part, Position, Target, differences


class DuckDBFile(Target):
    """A DuckDB file. `scalars` and `reductions` are views in it; one process at a time can write to it."""

    derives = frozenset({"scalars", "reductions"})

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._path = unquote(parts.netloc + parts.path)
        if self._path in ("", "/", ":memory:"):
            raise ConfigurationError("duckdb: names no file; write duckdb:warehouse.duckdb")
        try:
            self._database = duckdb.connect(self._path)
        except duckdb.Error as exc:
            raise ExportError(self._path, f"this is no DuckDB file that can be written to: {exc}") from exc

    def prepare(self, tables: Mapping[str, pa.Schema]) -> None:
        with self._transaction():
            for table, schema in {**tables, LEDGER: LEDGER_SCHEMA}.items():
                self._prepare(table, schema)
            if "tensors" in tables:
                for view in sorted(self.derives):
                    self._database.execute(f"create or replace view {view} as {load_view(view, 'main')}")

    def _prepare(self, table: str, schema: pa.Schema) -> None:
        self._database.register("rows_to_be", schema.empty_table())
        wanted = self._columns("rows_to_be")
        self._database.execute(f"create table if not exists {table} as from rows_to_be")
        self._database.unregister("rows_to_be")
        if difference := differences(wanted, self._columns(table)):
            raise TableMismatch(self._path, table, difference)

    def _columns(self, table: str) -> dict[str, str]:
        return {name: kind for name, kind, *_ in self._database.execute(f"describe {table}").fetchall()}

    def held(self, run: str) -> Held | None:
        rows = self._database.execute(
            f"select identity, table_name, worker, max(last_step) from {LEDGER} where run = $run group by all",
            {"run": run},
        ).fetchall()
        if not rows:
            return None
        return Held(rows[0][0], {Position(table, worker): last for _, table, worker, last in rows})

    def names(self) -> set[tuple[str, str]]:
        return set(self._database.execute(f"select identity, run from {LEDGER}").fetchall())

    def write(self, part: Part) -> int:
        with self._transaction():
            count = self._insert(part.table, part.reader())
            note = (part.run, part.identity, part.table, part.worker, part.last_step, count, datetime.now(UTC))
            columns = [pa.array([value], each.type) for value, each in zip(note, LEDGER_SCHEMA, strict=True)]
            self._insert(LEDGER, pa.Table.from_arrays(columns, schema=LEDGER_SCHEMA))
        return count

    def replace(self, table: str, run: str, rows: pa.Table) -> None:
        with self._transaction():
            self._database.execute(f"delete from {table} where run = $run", {"run": run})
            self._insert(table, rows)

    def close(self) -> None:
        self._database.close()

    def _insert(self, table: str, rows: pa.Table | pa.RecordBatchReader) -> int:
        self._database.register("new_rows", rows)
        try:
            ((count,),) = self._database.execute(f"insert into {table} from new_rows").fetchall()
        finally:
            self._database.unregister("new_rows")
        return int(count)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.begin()
        try:
            yield
        except BaseException as exc:
            self._database.rollback()
            if isinstance(exc, duckdb.Error):
                raise ExportError(self._path, str(exc)) from exc
            raise
        self._database.commit()
