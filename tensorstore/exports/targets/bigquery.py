"""The export into BigQuery: `bigquery://project/dataset`."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import IO, Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import ConfigurationError, ExportError, MissingExtra
from ...statistics.definitions import STATISTICS
from ..target import LEDGER, Part
from .sql_target import (
    KEY,
    LAST_STEP,
    LEDGER_ROW,
    SCALARS,
    SQLTarget,
    is_under_way,
    parameters_of,
    with_parameters,
)

try:
    from google.api_core.exceptions import GoogleAPIError, NotFound
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import GoogleAuthError
    from google.cloud import bigquery
except ModuleNotFoundError as exc:
    raise MissingExtra("google-cloud-bigquery", "bigquery", "an export into BigQuery") from exc

_KEPT = timedelta(days=1)


_STATISTICS = ", ".join(f"struct('{name}' as reduction, `{name}` as value)" for name in STATISTICS)

_REDUCTIONS = f"""
create or replace view {{reductions}} as
select {KEY}, saved.reduction, saved.value
from {{tensors}}
cross join unnest([{_STATISTICS}]) as saved
where saved.value is not null
"""


class BigQuery(SQLTarget):
    """A dataset of BigQuery. `scalars` and `reductions` are views in it.

    A part is loaded as Parquet into a table of its own, by a load job, and moved from there, with its row in the
    ledger, in one transaction. Such a table expires within a day if the process is killed before. Credentials are
    Google's usual ones (`GOOGLE_APPLICATION_CREDENTIALS`, `gcloud auth`); `endpoint`, the URL of an emulator, needs
    none.
    """

    _views = (SCALARS, _REDUCTIONS)

    def __init__(self, url: str, location: str | None = None, endpoint: str | None = None) -> None:
        parts = urlsplit(url)
        project, dataset = parts.netloc, parts.path.strip("/")
        if not project or not dataset or "/" in dataset or "@" in project:
            raise ConfigurationError("bigquery: names no dataset; write bigquery://project/dataset")
        self._name, self._dataset = f"bigquery://{project}/{dataset}", f"{project}.{dataset}"
        query = dict(parse_qsl(parts.query))
        location, endpoint = location or query.pop("location", None), endpoint or query.pop("endpoint", None)
        if query:
            raise ConfigurationError(f"bigquery: has no option {sorted(query)[0]!r}; it has location, endpoint")
        options: dict[str, Any] = {"location": location}
        if endpoint is not None:
            options |= {"credentials": AnonymousCredentials(), "client_options": {"api_endpoint": endpoint}}
        with self._session():
            self._client = bigquery.Client(project, **options)

    def write(self, part: Part) -> int:
        with self._session(), tempfile.TemporaryFile() as file:
            count = _write_parquet(part.reader(), file)
            ledger = self._table(LEDGER)
            row = LEDGER_ROW.format(last_step=part.last_step, count=count)
            with self._loaded(file, part.schema) as loaded:
                self._transaction(
                    f"select if(({LAST_STEP.format(ledger=ledger)}) = {part.after}, 0, error($under_way))",
                    f"insert into {self._table(part.table)} select * from {loaded}",
                    f"insert into {ledger} values ({row}, timestamp '{datetime.now(UTC).isoformat()}')",
                    **parameters_of(part),
                    under_way=is_under_way(part),
                )
        return count

    def replace(self, table: str, run: str, rows: pa.Table) -> None:
        with self._session(), tempfile.TemporaryFile() as file:
            _write_parquet(rows.to_reader(), file)
            with self._loaded(file, rows.schema) as loaded:
                self._transaction(
                    f"delete from {self._table(table)} where run = $run",
                    f"insert into {self._table(table)} select * from {loaded}",
                    run=run,
                )

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _loaded(self, file: IO[bytes], schema: pa.Schema) -> Iterator[str]:
        """Load a Parquet file into a table, and yield its name. The table is deleted after the block."""
        name = f"{self._dataset}.part_{secrets.token_hex(8)}"
        fields = [_field(field) for field in schema]
        table = bigquery.Table(name, fields)
        table.expires = datetime.now(UTC) + _KEPT
        self._client.create_table(table)
        try:
            lists = bigquery.ParquetOptions()
            lists.enable_list_inference = True
            config = bigquery.LoadJobConfig(source_format=bigquery.SourceFormat.PARQUET, schema=fields)
            config.parquet_options = lists
            self._client.load_table_from_file(file, name, rewind=True, job_config=config).result()
            yield f"`{name}`"
        finally:
            self._client.delete_table(name, not_found_ok=True)

    def _table(self, name: str) -> str:
        return f"`{self._dataset}.{name}`"

    def _transaction(self, *statements: str, **parameters: str) -> None:
        self._fetch("; ".join(["begin transaction", *statements, "commit transaction"]) + ";", **parameters)

    def _fetch(self, query: str, **parameters: str) -> list[tuple[Any, ...]]:
        text = with_parameters(query, parameters, lambda name: _literal(parameters[name]))
        return [tuple(row) for row in self._client.query(text).result()]

    def _create_schema(self) -> None:
        self._client.create_dataset(self._dataset, exists_ok=True)

    def _wanted_columns(self, schema: pa.Schema) -> dict[str, str]:
        return _columns([_field(field) for field in schema])

    def _found_columns(self, table: str) -> dict[str, str]:
        try:
            return _columns(self._client.get_table(f"{self._dataset}.{table}").schema)
        except NotFound:
            return {}

    def _create_table(self, table: str, schema: pa.Schema) -> None:
        self._client.create_table(bigquery.Table(f"{self._dataset}.{table}", [_field(field) for field in schema]))

    @contextmanager
    def _session(self) -> Iterator[None]:
        try:
            yield
        except (GoogleAPIError, GoogleAuthError) as exc:
            raise ExportError(self._name, str(exc)) from exc


def _write_parquet(rows: pa.RecordBatchReader, file: IO[bytes]) -> int:
    count = 0
    with pq.ParquetWriter(file, rows.schema, compression="zstd", compression_level=1, write_statistics=False) as writer:
        for batch in rows:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _literal(text: str) -> str:
    """Return a string of SQL. BigQuery escapes what JSON does, in the same way."""
    return json.dumps(text, ensure_ascii=False)


_NAMES = {
    pa.string(): "STRING",
    pa.binary(): "BYTES",
    pa.bool_(): "BOOL",
    pa.int32(): "INT64",
    pa.int64(): "INT64",
    pa.decimal128(20): "NUMERIC",
    pa.float64(): "FLOAT64",
}


def _field(field: pa.Field) -> Any:
    kind, mode = field.type, "NULLABLE" if field.nullable else "REQUIRED"
    if pa.types.is_list(kind):
        kind, mode = kind.value_type, "REPEATED"
    if pa.types.is_struct(kind):
        return bigquery.SchemaField(field.name, "RECORD", mode, fields=[_field(inner) for inner in kind])
    name = "TIMESTAMP" if pa.types.is_timestamp(kind) else _NAMES[kind]
    return bigquery.SchemaField(field.name, name, mode)


# BigQuery returns some types under their older names.
_OLDER = {"INTEGER": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL", "STRUCT": "RECORD"}


def _columns(fields: Any) -> dict[str, str]:
    return {field.name: _spelled(field) for field in fields}


def _spelled(field: Any) -> str:
    """Return a type in words, without whether it may be null."""
    name = _OLDER.get(field.field_type, field.field_type)
    if field.fields:
        name += f"<{', '.join(f'{inner.name} {_spelled(inner)}' for inner in field.fields)}>"
    return f"ARRAY<{name}>" if field.mode == "REPEATED" else str(name)
