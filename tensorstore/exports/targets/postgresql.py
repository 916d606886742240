"""The export into PostgreSQL: `postgresql://host/database?schema=runs`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlencode

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ExportError, MissingExtra
from ...statistics.definitions import STATISTICS
from .. import urls
from ..batches import ahead, gathered
from ..json_text import as_json
from ..tables import DOCUMENTS
from ..target import LEDGER, Held, Part, Replacement, reader_of, shown
from .sql_target import KEY, SCALARS, SQLTarget, ledger_table, numbered, with_parameters

try:
    import adbc_driver_manager
    from adbc_driver_postgresql import dbapi
except ModuleNotFoundError as exc:
    raise MissingExtra("adbc-driver-postgresql", "warehouse", "an export into PostgreSQL") from exc

_SENT_ROWS = 1 << 13
"""The number of rows that are encoded and sent at once: the server stores some while the next are encoded."""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_STATISTICS = ", ".join(f"('{name}', {_quoted(name)})" for name in STATISTICS)

_REDUCTIONS = f"""
create or replace view {{reductions}} as
select {KEY}, reduction, value
from {{tensors}}
cross join lateral (values {_STATISTICS}) as saved (reduction, value)
where value is not null
"""


class PostgreSQL(SQLTarget):
    """A schema of a PostgreSQL database. `scalars` and `reductions` are views in it.

    Rows are sent by a binary `COPY`; a part and its row in the ledger are one transaction. What the URL leaves out, the
    password above all, libpq takes from `PGPASSWORD`, `~/.pgpass`, `PGSERVICE`.
    """

    _views = (SCALARS, _REDUCTIONS)

    def __init__(self, url: str, schema: str = "") -> None:
        self._name = shown(url)
        parts = urls.split(url, self._name)
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
        self._schema = schema or parameters.pop("schema", "") or "public"
        parameters.pop("schema", None)
        # That of the texts that the driver sends; the server converts them to its own.
        parameters["client_encoding"] = "UTF8"
        self._secrets = urls.secrets(parts)
        with self._translated():
            # Without a server two slashes remain, and libpq uses its default one.
            self._connection = dbapi.connect(f"postgresql://{parts.netloc}{parts.path}?{urlencode(parameters)}")
        self._encoding, self._storable = "UTF8", set[str]()
        try:
            self._lock()
            with self._session():
                ((self._encoding,),) = self._fetch("select getdatabaseencoding()::text")
        except BaseException:
            self.close()
            raise

    def held(self, runs: Sequence[str]) -> dict[str, Held]:
        for run in runs:
            self._check_text(run, f"run {run!r}: its name")
        return super().held(runs)

    def write(self, parts: Sequence[Part]) -> None:
        table = parts[0].table
        with self._session():
            self._rewind(parts)
            self._ingest(table, reader_of(parts))
            self._ingest(LEDGER, ledger_table(parts, table).to_reader())

    def replace(self, table: str, replacements: Sequence[Replacement]) -> None:
        with self._session():
            runs = [each.run for each in replacements]
            self._change(*self._forgetting(table, runs), **numbered(runs))
            self._ingest(table, pa.concat_tables(each.rows for each in replacements).to_reader())
            self._ingest(LEDGER, ledger_table(replacements, table).to_reader())

    def close(self) -> None:
        self._connection.close()

    def _lock(self) -> None:
        """Lock the schema: two exports at once would both add what is new. The lock ends with the connection."""
        with self._session():
            locked = "select pg_try_advisory_lock(hashtext('tensortrial export'), hashtext($schema))"
            if self._fetch(locked, schema=self._schema) != [(True,)]:
                raise ExportError(self._name, f"another export into the schema {self._schema} is under way")

    def _create_schema(self) -> None:
        if not self._fetch("select 1 from pg_namespace where nspname = $schema", schema=self._schema):
            self._fetch(f"create schema {_quoted(self._schema)}")

    def _wanted_columns(self, schema: pa.Schema) -> dict[str, str]:
        return {field.name: "jsonb" if field.name in DOCUMENTS else _type(field.type) for field in schema}

    def _found_columns(self, table: str) -> dict[str, str]:
        rows = self._fetch(
            "select attname::text, format_type(atttypid, atttypmod) from pg_attribute "
            "where attrelid = to_regclass($table) and attnum > 0 and not attisdropped order by attnum",
            table=self._table(table),
        )
        return dict(rows)

    def _create_table(self, table: str, schema: pa.Schema) -> None:
        columns = ", ".join(f"{_quoted(name)} {kind}" for name, kind in self._wanted_columns(schema).items())
        self._fetch(f"create table {self._table(table)} ({columns})")

    def _table(self, name: str) -> str:
        return f"{_quoted(self._schema)}.{_quoted(name)}"

    def _ingest(self, table: str, rows: pa.RecordBatchReader) -> None:
        for piece in ahead(map(_as_stored, gathered(rows, rows.schema))):
            self._check_texts(table, piece)
            with self._connection.cursor() as cursor:
                stream = piece.to_reader(max_chunksize=_SENT_ROWS)
                cursor.adbc_ingest(table, stream, mode="append", db_schema_name=self._schema)

    def _check_texts(self, table: str, rows: pa.Table) -> None:
        """Raise ExportError for a text that the database cannot hold, whose encoding is another one than UTF-8."""
        for column in rows.column_names if self._encoding != "UTF8" else ():
            texts = rows[column].combine_chunks()
            at = pc.list_parent_indices(texts) if pa.types.is_list(texts.type) else None
            texts = texts if at is None else texts.flatten()
            if not pa.types.is_string(texts.type):
                continue
            for text in texts.unique().drop_null().to_pylist():
                if text not in self._storable:
                    row = pc.index(texts, text).as_py()
                    place = rows.slice(row if at is None else at[row].as_py(), 1).to_pydict()
                    kind = "collection" if table == "collections" else "tensor"
                    named = f", {kind} {place['name'][0]!r}" if "name" in place else ""
                    self._check_text(text, f"run {place['run'][0]!r}{named}: {column} {text!r}")

    def _check_text(self, text: str, what: str) -> None:
        if self._encoding == "UTF8" or text.isascii() or text in self._storable:
            return
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("select $1::text", (text,))
                cursor.fetchall()
        except adbc_driver_manager.Error as exc:
            self._connection.rollback()
            reason = f"cannot be stored in a database with the encoding {self._encoding}: use one with UTF8"
            raise ExportError(self._name, f"{what} {reason}") from exc
        self._storable.add(text)

    def _fetch(self, query: str, **parameters: str) -> list[tuple[Any, ...]]:
        numbers = {name: f"${number}" for number, name in enumerate(parameters, 1)}
        query = with_parameters(query, numbers, numbers.__getitem__)
        with self._connection.cursor() as cursor:
            cursor.execute(query, tuple(parameters.values()) or None)
            return list(cursor.fetchall()) if cursor.description else []

    @contextmanager
    def _session(self) -> Iterator[None]:
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
        # Not `from` the driver's own error, which shows what is left out here.
        raise ExportError(self._name, urls.without(self._secrets, message)) from None


_NAMES = {
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.bool_(): "boolean",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.decimal128(20): "numeric(20,0)",
    pa.float64(): "double precision",
}


def _type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"{_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return "json"
    return "timestamp with time zone" if pa.types.is_timestamp(kind) else _NAMES[kind]


# A zero character, and a half of a surrogate pair, which JSON can spell and `jsonb` cannot hold.
_UNSTORABLE = re.compile(
    r"\\\\|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|(\\u0000|\\ud[89a-f][0-9a-f]{2})", re.IGNORECASE
)
_JSONB_VERSION = "\x01"
"""The first byte of a `jsonb` in a binary COPY. Its text follows."""


def _jsonb(document: str | None) -> str | None:
    if document is None:
        return None
    return _JSONB_VERSION + _UNSTORABLE.sub(lambda found: "\\ufffd" if found[1] else found[0], document)


def _as_stored(rows: pa.Table) -> pa.Table:
    """Return the rows with histograms as JSON, as the driver has no structs, and without columns that are all null.

    Those become null in the table all the same, and sending them would take as long as sending numbers.
    """
    kept = [name for name, column in zip(rows.column_names, rows.columns, strict=True) if column.null_count < len(rows)]
    rows = rows.select(kept).combine_chunks()
    for index, field in enumerate(rows.schema):
        if pa.types.is_struct(field.type):
            rows = rows.set_column(index, field.name, as_json(rows[field.name].combine_chunks()))
        elif field.name in DOCUMENTS:
            documents = [_jsonb(document) for document in rows[field.name].to_pylist()]
            rows = rows.set_column(index, field.name, pa.array(documents, pa.string()))
    return rows
