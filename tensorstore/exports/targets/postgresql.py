"""The export into PostgreSQL: `postgresql://host/database?schema=runs`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote, urlencode

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ExportError, importing
from ...format.arrow_arrays import encoded
from ...statistics.definitions import STATISTICS
from .. import urls
from ..batches import ahead, gathered
from ..binary_copy import encode
from ..tables import DOCUMENTS
from ..target import LEDGER, Held, Part, Replacement, reader_of, shown
from .sql_target import KEY, RUN_SUMMARY, SCALARS, SQLTarget, ledger_table, quoted, with_parameters

with importing("psycopg2", "warehouse", "an export into PostgreSQL"):
    import psycopg2


_STATISTICS = ", ".join(f"('{name}', {quoted(name)})" for name in STATISTICS)

_REDUCTIONS = f"""
create or replace view {{reductions}} as
select {KEY}, reduction, value
from {{tensors}}
cross join lateral (values {_STATISTICS}) as saved (reduction, value)
where value is not null
"""


# A view stays with a table that is renamed.
_IS_DEFINED = """
select 1 from pg_rewrite join pg_depend on objid = pg_rewrite.oid and classid = 'pg_rewrite'::regclass
where ev_class = to_regclass($view) and refobjid = to_regclass($tensors)
    and strpos(obj_description(ev_class, 'pg_class'), $note) > 0
"""
_COMMENT = "select coalesce(obj_description(to_regclass($view), 'pg_class'), '')"
_NOTE = "tensortrial, definition "  # in a line of a view's comment


class PostgreSQL(SQLTarget):
    """A schema of a PostgreSQL database. `scalars` and `reductions` are views in it.

    Rows are sent by a binary `COPY`, in one transaction with their row in the ledger. libpq takes settings that the URL
    lacks, such as the password, from `PGPASSWORD`, `~/.pgpass` and `PGSERVICE`.
    """

    unsigned = True
    _views: ClassVar = {"scalars": SCALARS, "run_summary": RUN_SUMMARY, "reductions": _REDUCTIONS}

    def __init__(self, url: str, schema: str = "") -> None:
        self._name = shown(url)
        parts = urls.split(url, self._name)
        # A plus is no blank in libpq's URLs.
        parameters = dict(parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True))
        self._schema = schema or parameters.pop("schema", "") or "public"
        parameters.pop("schema", None)
        # The encoding of the texts that the driver sends. The server converts them to its own.
        parameters["client_encoding"] = "UTF8"
        self._secrets = urls.secrets(parts)
        with self._translated():
            # Without a host two slashes remain, and libpq uses its default host.
            self._connection = psycopg2.connect(
                f"postgresql://{parts.netloc}{parts.path}?{urlencode(parameters, quote_via=quote)}"
            )
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
            if reason := self._refusal(run):
                raise ExportError(self._name, f"run {run!r}: its name {reason}")
        return super().held(runs)

    def write(self, parts: Sequence[Part]) -> None:
        table = parts[0].table
        with self._session():
            self._rewind(parts)
            self._ingest(table, reader_of(parts, encoded(parts[0].schema)))
            self._ingest(LEDGER, ledger_table(parts, table).to_reader())

    def replace(self, table: str, replacements: Sequence[Replacement]) -> None:
        with self._session():
            self._forget(table, replacements)
            self._ingest(table, pa.concat_tables(each.rows for each in replacements).to_reader())
            self._ingest(LEDGER, ledger_table(replacements, table).to_reader())

    def close(self) -> None:
        # Otherwise the server unlocks when it notices the closed connection, which may be after the next export begins.
        with suppress(psycopg2.Error):
            self._connection.rollback()
            self._fetch("select pg_advisory_unlock_all()")
        self._connection.close()

    def _lock(self) -> None:
        """Lock the schema until the connection ends: two concurrent exports would both add the new rows."""
        with self._session():
            locked = "select pg_try_advisory_lock(hashtext('tensortrial export'), hashtext($schema))"
            if self._fetch(locked, schema=self._schema) != [(True,)]:
                raise ExportError(self._name, f"another export into the schema {self._schema} is under way")

    def _create_schema(self) -> None:
        if not self._fetch("select 1 from pg_namespace where nspname = $schema", schema=self._schema):
            self._fetch(f"create schema {quoted(self._schema)}")

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
        # Names sort as in a run, independent of the database's collation.
        kinds = {"text": 'text collate "C"'}
        wanted = self._wanted_columns(schema).items()
        columns = ", ".join(f"{quoted(name)} {kinds.get(kind, kind)}" for name, kind in wanted)
        self._fetch(f"create table {self._table(table)} ({columns})")

    def _create_view(self, view: str, statement: str) -> None:
        # To replace a view is to wait for its readers, and only its owner may do so.
        name, note = self._table(view), f"{_NOTE}{sha256(statement.encode()).hexdigest()[:16]}"
        if not self._fetch(_IS_DEFINED, view=name, note=note, tensors=self._table("tensors")):
            self._fetch(statement)
            ((comment,),) = self._fetch(_COMMENT, view=name)
            kept = [line for line in comment.split("\n") if line and not line.startswith(_NOTE)]
            self._fetch(f"comment on view {name} is $comment", comment="\n".join([*kept, note]))

    def _table(self, name: str) -> str:
        return f"{quoted(self._schema)}.{quoted(name)}"

    def _ingest(self, table: str, rows: pa.RecordBatchReader) -> None:
        for piece, stream in ahead(map(_encoded, gathered(rows, rows.schema))):
            self._check_texts(table, piece)
            names = ", ".join(map(quoted, piece.column_names))
            with self._connection.cursor() as cursor:
                cursor.copy_expert(f"copy {self._table(table)} ({names}) from stdin (format binary)", _Pieces(stream))

    def _check_texts(self, table: str, rows: pa.Table) -> None:
        """Raise ExportError for a text that the database cannot hold."""
        for column in rows.column_names:
            texts = rows[column].combine_chunks()
            lists = texts if pa.types.is_list(texts.type) else None
            texts = texts if lists is None else texts.flatten()
            texts = texts.dictionary_encode() if pa.types.is_string(texts.type) else texts
            if not pa.types.is_dictionary(texts.type):
                continue
            for code, text in enumerate(texts.dictionary.to_pylist()):
                # The dictionary may have texts of rows that were left out.
                if (reason := self._refusal(text)) and (row := pc.index(texts.indices, code).as_py()) >= 0:
                    row = row if lists is None else pc.list_parent_indices(lists)[row].as_py()
                    place = rows.slice(row, 1).to_pydict()
                    kind = "collection" if table == "collections" else "tensor"
                    named = f", {kind} {place['name'][0]!r}" if "name" in place else ""
                    raise ExportError(self._name, f"run {place['run'][0]!r}{named}: {column} {text!r} {reason}")

    def _refusal(self, text: str) -> str:
        """Return the reason why the database cannot hold a text; '' if it can."""
        if "\0" in text:
            return "has a zero character, which PostgreSQL cannot store: export to another target, such as duckdb:FILE"
        if self._encoding == "UTF8" or text.isascii() or text in self._storable:
            return ""
        try:
            self._fetch("select $text::text", text=text)
        except psycopg2.Error:
            self._connection.rollback()
            return f"cannot be stored in a database with the encoding {self._encoding}: use one with UTF8"
        self._storable.add(text)
        return ""

    def _fetch(self, query: str, **parameters: str) -> list[tuple[Any, ...]]:
        if parameters:  # without parameters, the driver does not interpret %
            query = with_parameters(query.replace("%", "%%"), parameters, "%({})s".format)
        with self._connection.cursor() as cursor:
            cursor.execute(query, parameters or None)
            return list(cursor.fetchall()) if cursor.description else []

    @contextmanager
    def _session(self) -> Iterator[None]:
        with self._translated():
            try:
                yield
            except BaseException:
                with suppress(psycopg2.Error):  # the server may have ended the connection, and said why
                    self._connection.rollback()
                raise
            self._connection.commit()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg2.Error as exc:
            # Without `from exc`, because the driver's error shows the secrets.
            raise ExportError(self._name, urls.without(self._secrets, str(exc))) from None


def _encoded(rows: pa.Table) -> tuple[pa.Table, list[bytes]]:
    """Return the columns that are not null in all rows, and their rows as a COPY stream."""
    kept = [name for name, column in zip(rows.column_names, rows.columns, strict=True) if column.null_count < len(rows)]
    rows = rows.select(kept).combine_chunks()
    return rows, encode(rows, DOCUMENTS)


class _Pieces:
    """A COPY stream as a file that the driver reads. Each call returns one part of any size."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)

    def read(self, size: int) -> bytes:
        return next(self._pieces, b"")


_NAMES = {
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.bool_(): "boolean",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.uint64(): "numeric(20,0)",
    pa.float64(): "double precision",
}


def _type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"{_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return "json"
    return "timestamp with time zone" if pa.types.is_timestamp(kind) else _NAMES[kind]
