"""The export into BigQuery: `bigquery://project/dataset`."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import IO, Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import ConfigurationError, ExportError, importing
from ...statistics.definitions import STATISTICS
from ..target import LEDGER, Part, Replacement, is_under_way, reader_of
from .sql_target import (
    KEY,
    LAST_STEP,
    RUN_SUMMARY,
    SCALARS,
    SQLTarget,
    ledger_select,
    numbered,
    parameters_of,
    with_parameters,
)

with importing("google-cloud-bigquery", "bigquery", "an export into BigQuery"):
    from google.api_core.exceptions import GoogleAPIError, NotFound
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import GoogleAuthError
    from google.cloud import bigquery

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

    A load job loads a part as Parquet into a table of its own. One transaction then moves its rows, and adds the row of
    the ledger. If the process is killed before, the table expires within a day. Credentials are Google's usual ones
    (`GOOGLE_APPLICATION_CREDENTIALS`, `gcloud auth`). The emulator at the URL `endpoint` needs none.
    """

    _views: ClassVar = {"scalars": SCALARS, "run_summary": RUN_SUMMARY, "reductions": _REDUCTIONS}

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

    def write(self, parts: Sequence[Part]) -> None:
        table, ledger = parts[0].table, self._table(LEDGER)
        with self._session(), tempfile.TemporaryFile() as file:
            _write_parquet(reader_of(parts), file)
            with self._loaded(file, parts[0].schema) as loaded:
                statements = []
                for part in parts:
                    own, under_way = parameters_of(part), _literal(is_under_way(part.run))
                    last_step = _spelled_with(LAST_STEP.format(ledger=ledger), own)
                    statements.append(f"select if(({last_step}) = {part.held}, 0, error({under_way}))")
                    if part.goes_back:
                        statements += [_spelled_with(each, own) for each in self._rewinding(part)]
                self._run(
                    *statements,
                    f"insert into {self._table(table)} select * from {loaded}",
                    f"insert into {ledger} {ledger_select(parts, table, _now(), _literal)}",
                )

    def replace(self, table: str, replacements: Sequence[Replacement]) -> None:
        rows = pa.concat_tables(each.rows for each in replacements)
        parameters = numbered([each.run for each in replacements])
        forgetting = self._forgetting(table, list(parameters.values()))
        with self._session(), tempfile.TemporaryFile() as file:
            _write_parquet(rows.to_reader(), file)
            with self._loaded(file, rows.schema) as loaded:
                self._run(
                    *(_spelled_with(each, parameters) for each in forgetting),
                    f"insert into {self._table(table)} select * from {loaded}",
                    f"insert into {self._table(LEDGER)} {ledger_select(replacements, table, _now(), _literal)}",
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

    def _change(self, *statements: str, **parameters: str) -> None:
        self._run(*(_spelled_with(statement, parameters) for statement in statements))

    def _run(self, *statements: str) -> None:
        """Run statements in one transaction."""
        self._client.query("; ".join(["begin transaction", *statements, "commit transaction"]) + ";").result()

    def _fetch(self, query: str, **parameters: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._client.query(_spelled_with(query, parameters)).result()]

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


def _write_parquet(rows: pa.RecordBatchReader, file: IO[bytes]) -> None:
    with pq.ParquetWriter(file, rows.schema, compression="zstd", compression_level=1, write_statistics=False) as writer:
        for batch in rows:
            writer.write_batch(batch)


def _now() -> str:
    return f"timestamp '{datetime.now(UTC).isoformat()}'"


def _spelled_with(query: str, parameters: Mapping[str, str]) -> str:
    return with_parameters(query, parameters, lambda name: _literal(parameters[name]))


def _literal(text: str) -> str:
    """Return a text as an SQL literal. BigQuery has the escapes of JSON."""
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
    """Return a type in words, without its nullability."""
    name = _OLDER.get(field.field_type, field.field_type)
    if field.fields:
        name += f"<{', '.join(f'{inner.name} {_spelled(inner)}' for inner in field.fields)}>"
    return f"ARRAY<{name}>" if field.mode == "REPEATED" else str(name)
