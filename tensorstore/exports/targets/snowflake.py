"""The export into Snowflake: `snowflake://USER@ACCOUNT/DATABASE/SCHEMA?warehouse=NAME`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from ...errors import ConfigurationError, ExportError, importing
from ...statistics.definitions import STATISTICS
from .. import urls
from ..batches import gathered
from ..json_text import as_json, is_nested
from ..target import LEDGER, Part, Replacement, reader_of
from .sql_target import (
    KEY,
    LAST_STEP,
    RUN_SUMMARY,
    SCALARS,
    SQLTarget,
    ledger_select,
    parameters_of,
    quoted,
    with_parameters,
)

with importing("adbc-driver-snowflake", "snowflake", "an export into Snowflake"):
    import adbc_driver_manager
    from adbc_driver_snowflake import dbapi

# The driver's names of the URL's options. An option with a dot in its name is passed on unchanged.
_OPTIONS = {
    "host": "adbc.snowflake.sql.uri.host",
    "port": "adbc.snowflake.sql.uri.port",
    "protocol": "adbc.snowflake.sql.uri.protocol",
    "role": "adbc.snowflake.sql.role",
    "warehouse": "adbc.snowflake.sql.warehouse",
}


_REDUCTIONS = "create or replace view {reductions} as " + " union all ".join(
    f"select {KEY}, '{name}' as reduction, {quoted(name.upper())} as value from {{tensors}} "
    f"where {quoted(name.upper())} is not null"
    for name in STATISTICS
)


class Snowflake(SQLTarget):
    """A schema of a Snowflake database. `scalars` and `reductions` are views in it.

    A part is uploaded into a temporary table. One transaction then moves its rows, and adds the row of the ledger. The
    password is in `SNOWFLAKE_PASSWORD` or in the URL. Names are upper-case, as Snowflake reads unquoted names.
    """

    _views: ClassVar = {"scalars": SCALARS, "run_summary": RUN_SUMMARY, "reductions": _REDUCTIONS}

    def __init__(self, url: str, **options: Any) -> None:
        self._name = "snowflake:"
        settings, self._secrets = self._settings(url, options)
        with self._session():
            self._connection = dbapi.connect(db_kwargs=settings, autocommit=True)

    def _settings(self, url: str, options: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
        """Return the driver's settings, and the secrets among them."""
        server, _, rest = url.partition("://")[2].rpartition("@")[2].partition("/")
        database, _, schema = rest.partition("?")[0].strip("/").partition("/")
        if not server or not database or not schema or "/" in schema or "@" in rest:
            raise ConfigurationError("snowflake: write USER@ACCOUNT/DATABASE/SCHEMA?warehouse=NAME after snowflake://")
        self._name, self._schema = f"snowflake://{server}/{database}/{schema}", schema.upper()
        parts = urlsplit(f"x://{url.partition('://')[2]}")
        password = unquote(parts.password or "") or os.environ.get("SNOWFLAKE_PASSWORD", "")
        settings = {
            "adbc.snowflake.sql.account": server,
            "adbc.snowflake.sql.db": database.upper(),
            "username": unquote(parts.username or ""),
            "password": password,
        }
        for name, value in (dict(parse_qsl(parts.query)) | dict(options)).items():
            if name not in _OPTIONS and "." not in name:
                raise ConfigurationError(f"snowflake: has no option {name!r}; it has {', '.join(sorted(_OPTIONS))}")
            settings[name if "." in name else _OPTIONS[name]] = str(value)
        private = [value for name, value in settings.items() if "token" in name or "private_key" in name]
        hidden = [text for text in (password, parts.password or "", *private) if text]
        return {name: value for name, value in settings.items() if value}, hidden

    def write(self, parts: Sequence[Part]) -> None:
        table, ledger = parts[0].table, self._table(LEDGER)
        with self._session(), self._uploaded(table, reader_of(parts)) as moved, self._transaction():
            # The ledger is changed first, so that a concurrent export waits here until this transaction ends.
            self._fetch(f"update {ledger} set row_count = row_count where table_name = $table", table=table)
            for part in parts:
                if self._fetch(LAST_STEP.format(ledger=ledger), **parameters_of(part)) != [(part.held,)]:
                    raise self._is_under_way(part.run)
            self._rewind(parts)
            self._fetch_text(f"insert into {ledger} {ledger_select(parts, table, _now(), _literal)}")
            self._fetch(moved)

    def replace(self, table: str, replacements: Sequence[Replacement]) -> None:
        rows = pa.concat_tables(each.rows for each in replacements)
        with self._session(), self._uploaded(table, rows.to_reader()) as moved, self._transaction():
            self._forget(table, replacements)
            noted = ledger_select(replacements, table, _now(), _literal)
            self._fetch_text(f"insert into {self._table(LEDGER)} {noted}")
            self._fetch(moved)

    def close(self) -> None:
        self._connection.close()

    def _table(self, name: str) -> str:
        return quoted(name.upper())

    def _create_schema(self) -> None:
        self._fetch(f"create schema if not exists {quoted(self._schema)}")
        self._fetch(f"use schema {quoted(self._schema)}")

    def _wanted_columns(self, schema: pa.Schema) -> dict[str, str]:
        return _lower({field.name: _type(field.type) for field in schema})

    def _found_columns(self, table: str) -> dict[str, str]:
        rows = self._fetch(
            "select column_name, data_type from information_schema.columns "
            "where table_schema = $schema and table_name = $table order by ordinal_position",
            schema=self._schema,
            table=table.upper(),
        )
        return _lower(dict(rows))

    def _create_table(self, table: str, schema: pa.Schema) -> None:
        columns = _columns({field.name.upper(): _type(field.type) for field in schema})
        self._fetch(f"create table {self._table(table)} ({columns})")

    @contextmanager
    def _uploaded(self, table: str, rows: pa.RecordBatchReader) -> Iterator[str]:
        """Upload rows into a temporary table; yield the statement that moves them."""
        name = f"PART_{secrets.token_hex(8).upper()}"
        uploaded = {
            field.name.upper(): "varchar" if is_nested(field.type) else _type(field.type) for field in rows.schema
        }
        kept = quoted(name)
        self._fetch(f"create temporary table {kept} ({_columns(uploaded)})")
        try:
            for piece in gathered(rows, rows.schema):
                with self._connection.cursor() as cursor:
                    cursor.adbc_ingest(name, _as_uploaded(piece), mode="append")
            columns = [
                f"parse_json({quoted(field.name.upper())})" if is_nested(field.type) else quoted(field.name.upper())
                for field in rows.schema
            ]
            yield f"insert into {self._table(table)} select {', '.join(columns)} from {kept}"
        finally:
            self._fetch(f"drop table if exists {kept}")

    def _fetch(self, query: str, **parameters: str) -> list[tuple[Any, ...]]:
        return self._fetch_text(with_parameters(query, parameters, lambda name: _literal(parameters[name])))

    def _fetch_text(self, query: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._fetch("begin transaction")
        try:
            yield
        except BaseException:
            self._fetch("rollback")
            raise
        self._fetch("commit")

    @contextmanager
    def _session(self) -> Iterator[None]:
        try:
            yield
        except adbc_driver_manager.Error as exc:
            # Without `from exc`, because the driver's error shows the secrets.
            raise ExportError(self._name, urls.without(self._secrets, str(exc))) from None


def _as_uploaded(rows: pa.Table) -> pa.Table:
    """Return the rows with lists and histograms as JSON, and upper-case names."""
    columns = [as_json(column.combine_chunks()) if is_nested(column.type) else column for column in rows.columns]
    return pa.table(columns, names=[name.upper() for name in rows.column_names])


def _columns(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def _lower(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns by their lower-case names, with Snowflake's names of their types."""
    return {name.lower(): _CALLED.get(kind.upper(), kind.upper()) for name, kind in columns.items()}


def _now() -> str:
    return f"{_literal(datetime.now(UTC).isoformat())}::timestamp_tz"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


_NAMES = {
    pa.string(): "varchar",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.int32(): "number(38,0)",
    pa.int64(): "number(38,0)",
    pa.decimal128(20): "number(20,0)",
    pa.float64(): "double",
}

_CALLED = {"VARCHAR": "TEXT", "NUMBER(38,0)": "NUMBER", "NUMBER(20,0)": "NUMBER", "DOUBLE": "FLOAT"}


def _type(kind: pa.DataType) -> str:
    if is_nested(kind):
        return "variant"
    return "timestamp_tz" if pa.types.is_timestamp(kind) else _NAMES[kind]
