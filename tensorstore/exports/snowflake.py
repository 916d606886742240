"""Export into Snowflake: `snowflake://USER@ACCOUNT/DATABASE/SCHEMA?warehouse=NAME`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from ..errors import ConfigurationError, ExportError, MissingExtra, TableMismatch
from ..statistics.definitions import STATISTICS
from .batches import gathered
from .json_text import as_json, is_nested
from .target import LEDGER, LEDGER_SCHEMA, Held, Part, Position, Target, differences

try:
    import adbc_driver_manager
    from adbc_driver_snowflake import dbapi
except ModuleNotFoundError as exc:
    raise MissingExtra("adbc-driver-snowflake", "snowflake", "an export into Snowflake") from exc

# What a URL says, and its name for the driver; an option with a dot in it is the driver's own.
_OPTIONS = {
    "host": "adbc.snowflake.sql.uri.host",
    "port": "adbc.snowflake.sql.uri.port",
    "protocol": "adbc.snowflake.sql.uri.protocol",
    "role": "adbc.snowflake.sql.role",
    "warehouse": "adbc.snowflake.sql.warehouse",
}


class Snowflake(Target):
    """A schema of a Snowflake database. `scalars` and `reductions` are views in it.

    A part is uploaded into a temporary table, and moved from there, with its note, in one transaction. The password is
    in `SNOWFLAKE_PASSWORD`, or in the URL. Names are upper-case, as Snowflake takes a name without quotes.
    """

    derives = frozenset({"scalars", "reductions"})

    def __init__(self, url: str, **options: Any) -> None:
        self._name = "snowflake:"
        given, self._secrets = self._settings(url, options)
        with self._translated():
            self._connection = dbapi.connect(db_kwargs=given, autocommit=True)

    def _settings(self, url: str, options: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
        """What the driver is to be told, and what of it is not for others."""
        server, _, rest = url.partition("://")[2].rpartition("@")[2].partition("/")
        database, _, schema = rest.partition("?")[0].strip("/").partition("/")
        if not server or not database or not schema or "/" in schema or "@" in rest:
            raise ConfigurationError("snowflake: write snowflake://USER@ACCOUNT/DATABASE/SCHEMA?warehouse=NAME")
        self._name, self._schema = f"snowflake://{server}/{database}/{schema}", schema.upper()
        parts = urlsplit(f"x://{url.partition('://')[2]}")
        password = unquote(parts.password or "") or os.environ.get("SNOWFLAKE_PASSWORD", "")
        given = {
            "adbc.snowflake.sql.account": server,
            "adbc.snowflake.sql.db": database.upper(),
            "username": unquote(parts.username or ""),
            "password": password,
        }
        for name, value in (dict(parse_qsl(parts.query)) | dict(options)).items():
            if name not in _OPTIONS and "." not in name:
                raise ConfigurationError(f"snowflake: has no option {name!r}; it has {', '.join(sorted(_OPTIONS))}")
            given[name if "." in name else _OPTIONS[name]] = str(value)
        private = [value for name, value in given.items() if "token" in name or "private_key" in name]
        hidden = {text for text in (password, parts.password or "", *private) if text}
        return {name: value for name, value in given.items() if value}, sorted(hidden, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"Snowflake({self._name!r})"

    def prepare(self, tables: Mapping[str, pa.Schema]) -> None:
        with self._translated():
            self._execute(f"create schema if not exists {_quoted(self._schema)}")
            self._execute(f"use schema {_quoted(self._schema)}")
            for table, schema in {**tables, LEDGER: LEDGER_SCHEMA}.items():
                self._prepare(table, {field.name.upper(): _type(field.type) for field in schema})
            if "tensors" in tables:
                for view, text in (("scalars", _SCALARS), ("reductions", _REDUCTIONS)):
                    self._execute(text.format(view=_table(view), tensors=_table("tensors")))

    def _prepare(self, table: str, columns: Mapping[str, str]) -> None:
        found = dict(
            self._ask(
                "select column_name, data_type from information_schema.columns "
                f"where table_schema = {_literal(self._schema)} and table_name = {_literal(table.upper())} "
                "order by ordinal_position"
            )
        )
        if not found:
            self._execute(f"create table {_table(table)} ({_columns(columns)})")
        elif difference := differences(_lower(columns), _lower(found)):
            raise TableMismatch(self._name, table, difference)

    def held(self, run: str) -> Held | None:
        with self._translated():
            rows = self._ask(
                f"select identity, table_name, worker, max(last_step) from {_table(LEDGER)} "
                f"where run = {_literal(run)} group by identity, table_name, worker"
            )
        if not rows:
            return None
        return Held(rows[0][0], {Position(table, worker): int(last) for _, table, worker, last in rows})

    def names(self) -> set[tuple[str, str]]:
        with self._translated():
            return {tuple(row) for row in self._ask(f"select distinct identity, run from {_table(LEDGER)}")}

    def write(self, part: Part) -> int:
        ledger, place = _table(LEDGER), _place(part)
        with self._translated(), self._uploaded(part.table, part.reader()) as (moved, count):
            texts = ", ".join(map(_literal, (part.run, part.identity, part.table, part.worker)))
            note = f"{texts}, {part.last_step}, {count}, {_literal(datetime.now(UTC).isoformat())}::timestamp_tz"
            with self._transaction():
                # The note first: until this transaction ends, another that writes notes waits here.
                self._execute(f"update {ledger} set row_count = row_count where {place}")
                ((last,),) = self._ask(f"select coalesce(max(last_step), -1) from {ledger} where {place}")
                if last != part.after:
                    reason = f"another export of {part.run} is under way; export again once it is done"
                    raise ExportError(self._name, reason)
                self._execute(f"insert into {ledger} select {note}")
                self._execute(moved)
        return count

    def replace(self, table: str, run: str, rows: pa.Table) -> None:
        with self._translated(), self._uploaded(table, rows.to_reader()) as (moved, _), self._transaction():
            self._execute(f"delete from {_table(table)} where run = {_literal(run)}")
            self._execute(moved)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _uploaded(self, table: str, rows: pa.RecordBatchReader) -> Iterator[tuple[str, int]]:
        """Rows in a temporary table, as the statement that moves them, and their number."""
        name = f"PART_{secrets.token_hex(8).upper()}"
        uploaded = {
            field.name.upper(): "varchar" if is_nested(field.type) else _type(field.type) for field in rows.schema
        }
        kept = _quoted(name)
        self._execute(f"create temporary table {kept} ({_columns(uploaded)})")
        try:
            count = 0
            for piece in gathered(rows, rows.schema):
                with self._connection.cursor() as cursor:
                    cursor.adbc_ingest(name, _as_uploaded(piece), mode="append")
                count += len(piece)
            columns = [
                f"parse_json({_quoted(field.name.upper())})" if is_nested(field.type) else _quoted(field.name.upper())
                for field in rows.schema
            ]
            yield f"insert into {_table(table)} select {', '.join(columns)} from {kept}", count
        finally:
            self._execute(f"drop table if exists {kept}")

    def _execute(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def _ask(self, query: str) -> Sequence[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._execute("begin transaction")
        try:
            yield
        except BaseException:
            self._execute("rollback")
            raise
        self._execute("commit")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except adbc_driver_manager.Error as exc:
            self._refuse(str(exc))

    def _refuse(self, message: str) -> NoReturn:
        for secret in self._secrets:
            message = message.replace(secret, "***")
        # Not `from` the driver's own error, which would be shown with what is left out here.
        raise ExportError(self._name, message.strip()) from None


def _place(part: Part) -> str:
    return f"run = {_literal(part.run)} and table_name = {_literal(part.table)} and worker = {_literal(part.worker)}"


def _as_uploaded(rows: pa.Table) -> pa.Table:
    """With lists and histograms as JSON, and names in upper case."""
    columns = [as_json(column.combine_chunks()) if is_nested(column.type) else column for column in rows.columns]
    return pa.table(columns, names=[name.upper() for name in rows.column_names])


def _table(name: str) -> str:
    return _quoted(name.upper())


def _columns(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{_quoted(name)} {kind}" for name, kind in columns.items())


def _lower(columns: Mapping[str, str]) -> dict[str, str]:
    """Columns as we call them, with the types as Snowflake calls them."""
    return {name.lower(): _CALLED.get(kind.upper(), kind.upper()) for name, kind in columns.items()}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


_NAMES = {
    pa.string(): "varchar",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.int32(): "number(38,0)",
    pa.int64(): "number(38,0)",
    pa.float64(): "double",
}

_CALLED = {"VARCHAR": "TEXT", "NUMBER(38,0)": "NUMBER", "DOUBLE": "FLOAT"}


def _type(kind: pa.DataType) -> str:
    if is_nested(kind):
        return "variant"
    return "timestamp_tz" if pa.types.is_timestamp(kind) else _NAMES[kind]


_PLACE = "run, name, mode, mode_step, global_step, worker"

_SCALARS = f"""
create or replace view {{view}} as
select {_PLACE}, saved_at, scalar as value, collections
from {{tensors}}
where scalar is not null
"""

_REDUCTIONS = "create or replace view {view} as " + " union all ".join(
    f"select {_PLACE}, '{name}' as reduction, {_quoted(name.upper())} as value from {{tensors}} "
    f"where {_quoted(name.upper())} is not null"
    for name in STATISTICS
)
