"""Export into PostgreSQL: `postgresql://host/database?schema=runs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlencode

import pyarrow as pa

from ..errors import ExportError, MissingExtra, TableMismatch
from ..statistics.definitions import STATISTICS
from . import urls
from .batches import ahead, gathered
from .json_text import as_json
from .target import LEDGER, LEDGER_SCHEMA, Held, Part, Position, Target, differences, shown

try:
    import adbc_driver_manager
    from adbc_driver_postgresql import dbapi
except ModuleNotFoundError as exc:
    raise MissingExtra("adbc-driver-postgresql", "warehouse", "an export into PostgreSQL") from exc

_SENT_ROWS = 1 << 13
"""So few are encoded and sent at once: the server stores some while the next are encoded, in half the time."""


class PostgreSQL(Target):
    """A schema of a PostgreSQL database. `scalars` and `reductions` are views in it.

    Rows go over as `COPY` takes them, in binary; a part and its note are one transaction. What the URL does not say,
    the password above all, libpq takes from its own places: `PGPASSWORD`, `~/.pgpass`, `PGSERVICE`.
    """

    derives = frozenset({"scalars", "reductions"})

    def __init__(self, url: str, schema: str = "") -> None:
        self._name = shown(url)
        parts = urls.split(url, self._name)
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
        self._schema = schema or parameters.pop("schema", "") or "public"
        parameters.pop("schema", None)
        self._secrets = urls.secrets(parts)
        with self._translated():
            # Without a server there are two slashes all the same, for libpq's own one.
            self._connection = dbapi.connect(f"postgresql://{parts.netloc}{parts.path}?{urlencode(parameters)}")
        try:
            self._lock()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"PostgreSQL({self._name!r})"

    def prepare(self, tables: Mapping[str, pa.Schema]) -> None:
        with self._transaction():
            if not self._ask("select 1 from pg_namespace where nspname = $1", self._schema):
                self._execute(f"create schema {_quoted(self._schema)}")
            for table, schema in {**tables, LEDGER: LEDGER_SCHEMA}.items():
                self._prepare(table, {field.name: _type(field.type) for field in schema})
            if "tensors" in tables:
                self._execute(_SCALARS.format(view=self._table("scalars"), tensors=self._table("tensors")))
                self._execute(_REDUCTIONS.format(view=self._table("reductions"), tensors=self._table("tensors")))

    def _prepare(self, table: str, columns: Mapping[str, str]) -> None:
        found = self._columns(table)
        if not found:
            text = ", ".join(f"{_quoted(name)} {kind}" for name, kind in columns.items())
            self._execute(f"create table {self._table(table)} ({text})")
        elif difference := differences(columns, found):
            raise TableMismatch(self._name, table, difference)

    def _columns(self, table: str) -> dict[str, str]:
        rows = self._ask(
            "select attname::text, format_type(atttypid, atttypmod) from pg_attribute "
            "where attrelid = to_regclass($1) and attnum > 0 and not attisdropped order by attnum",
            self._table(table),
        )
        return dict(rows)

    def held(self, run: str) -> Held | None:
        with self._transaction():
            rows = self._ask(
                "select identity, table_name, worker, max(last_step) "
                f"from {self._table(LEDGER)} where run = $1 group by identity, table_name, worker",
                run,
            )
        if not rows:
            return None
        return Held(rows[0][0], {Position(table, worker): last for _, table, worker, last in rows})

    def names(self) -> set[tuple[str, str]]:
        with self._transaction():
            return {tuple(row) for row in self._ask(f"select distinct identity, run from {self._table(LEDGER)}")}

    def write(self, part: Part) -> int:
        with self._transaction():
            count = self._ingest(part.table, part.reader())
            note = (part.run, part.identity, part.table, part.worker, part.last_step, count, datetime.now(UTC))
            columns = [pa.array([value], each.type) for value, each in zip(note, LEDGER_SCHEMA, strict=True)]
            self._ingest(LEDGER, pa.Table.from_arrays(columns, schema=LEDGER_SCHEMA).to_reader())
        return count

    def replace(self, table: str, run: str, rows: pa.Table) -> None:
        with self._transaction():
            self._ask(f"delete from {self._table(table)} where run = $1 returning 1", run)
            if len(rows):
                self._ingest(table, rows.to_reader())

    def close(self) -> None:
        self._connection.close()

    def _lock(self) -> None:
        """Two exports at once would both move what is new. The lock goes with the connection, however it ends."""
        with self._transaction():
            locked = "select pg_try_advisory_lock(hashtext('tensortrial export'), hashtext($1))"
            if self._ask(locked, self._schema) != [(True,)]:
                raise ExportError(self._name, f"another export into the schema {self._schema} is under way")

    def _table(self, name: str) -> str:
        return f"{_quoted(self._schema)}.{_quoted(name)}"

    def _ingest(self, table: str, rows: pa.RecordBatchReader) -> int:
        count = 0
        for piece in ahead(map(_as_stored, gathered(rows, rows.schema))):
            with self._connection.cursor() as cursor:
                stream = piece.to_reader(max_chunksize=_SENT_ROWS)
                cursor.adbc_ingest(table, stream, mode="append", db_schema_name=self._schema)
            count += len(piece)
        return count

    def _execute(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def _ask(self, query: str, *parameters: str) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(query, parameters)
            return list(cursor.fetchall())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._translated():
            try:
                yield
            except BaseException:
                self._connection.rollback()
                raise
            self._connection.commit()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except adbc_driver_manager.Error as exc:
            self._refuse(str(exc))

    def _refuse(self, message: str) -> NoReturn:
        # Not `from` the driver's own error, which would be shown with what is left out here.
        raise ExportError(self._name, urls.without(self._secrets, message)) from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_NAMES = {
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.bool_(): "boolean",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float64(): "double precision",
}


def _type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"{_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return "json"
    return "timestamp with time zone" if pa.types.is_timestamp(kind) else _NAMES[kind]


def _as_stored(rows: pa.Table) -> pa.Table:
    """With histograms as JSON, because the driver knows no structs, and without the columns that hold nothing but null:
    null is what they become, and to send it would take as long as to send numbers."""
    kept = [name for name, column in zip(rows.column_names, rows.columns, strict=True) if column.null_count < len(rows)]
    rows = rows.select(kept).combine_chunks()
    for place, field in enumerate(rows.schema):
        if pa.types.is_struct(field.type):
            rows = rows.set_column(place, field.name, as_json(rows[field.name].combine_chunks()))
    return rows


_PLACE = "run, name, mode, mode_step, global_step, worker"

_SCALARS = f"""
create or replace view {{view}} as
select {_PLACE}, saved_at, scalar as value, collections
from {{tensors}}
where scalar is not null
"""

_STATISTICS = ", ".join(f"('{name}', {_quoted(name)})" for name in STATISTICS)

_REDUCTIONS = f"""
create or replace view {{view}} as
select {_PLACE}, reduction, value
from {{tensors}}
cross join lateral (values {_STATISTICS}) as saved (reduction, value)
where value is not null
"""
