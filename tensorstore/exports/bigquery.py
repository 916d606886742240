"""Export into BigQuery: `bigquery://project/dataset`."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import IO, Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import ConfigurationError, ExportError, MissingExtra, TableMismatch
from ..statistics.definitions import STATISTICS
from .target import LEDGER, LEDGER_SCHEMA, Held, Part, Position, Target, differences

try:
    from google.api_core.exceptions import GoogleAPIError, NotFound
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import GoogleAuthError
    from google.cloud import bigquery
except ModuleNotFoundError as exc:
    raise MissingExtra("google-cloud-bigquery", "bigquery", "an export into BigQuery") from exc

_KEPT = timedelta(days=1)


class BigQuery(Target):
    """A dataset of BigQuery. `scalars` and `reductions` are views in it.

    A part is loaded as Parquet into a table of its own, by a load job, and moved from there, with its note, in one
    transaction. Such a table goes within a day if the process is killed before. Credentials are Google's usual ones
    (`GOOGLE_APPLICATION_CREDENTIALS`, `gcloud auth`); with `endpoint`, the URL of an emulator, there are none.
    """

    derives = frozenset({"scalars", "reductions"})

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
        with self._translated():
            self._client = bigquery.Client(project, **options)

    def prepare(self, tables: Mapping[str, pa.Schema]) -> None:
        with self._translated():
            self._client.create_dataset(self._dataset, exists_ok=True)
            for table, schema in {**tables, LEDGER: LEDGER_SCHEMA}.items():
                fields = [_field(field) for field in schema]
                try:
                    found = self._client.get_table(f"{self._dataset}.{table}")
                except NotFound:
                    self._client.create_table(bigquery.Table(f"{self._dataset}.{table}", fields))
                else:
                    if difference := differences(_columns(fields), _columns(found.schema)):
                        raise TableMismatch(self._name, table, difference)
            if "tensors" in tables:
                for view in (_SCALARS, _REDUCTIONS):
                    self._run(view.format(dataset=self._dataset))

    def held(self, run: str) -> Held | None:
        with self._translated():
            rows = self._run(
                f"select identity, table_name, worker, max(last_step) from {self._table(LEDGER)} "
                f"where run = {_literal(run)} group by identity, table_name, worker"
            )
        if not rows:
            return None
        return Held(rows[0][0], {Position(table, worker): last for _, table, worker, last in rows})

    def names(self) -> set[tuple[str, str]]:
        with self._translated():
            return {tuple(row) for row in self._run(f"select distinct identity, run from {self._table(LEDGER)}")}

    def write(self, part: Part) -> int:
        place = (
            f"run = {_literal(part.run)} and table_name = {_literal(part.table)} and worker = {_literal(part.worker)}"
        )
        texts = map(_literal, (part.run, part.identity, part.table, part.worker))
        with self._translated(), tempfile.TemporaryFile() as file:
            count = _write_parquet(part.reader(), file)
            note = f"{', '.join(texts)}, {part.last_step}, {count}, timestamp '{datetime.now(UTC).isoformat()}'"
            ledger = self._table(LEDGER)
            with self._loaded(file, part.schema) as loaded:
                self._transaction(
                    f"select if((select coalesce(max(last_step), -1) from {ledger} where {place}) = {part.after}, 0, "
                    f"error({_literal(f'another export of {part.run} is under way; export again once it is done')}))",
                    f"insert into {self._table(part.table)} select * from {loaded}",
                    f"insert into {ledger} values ({note})",
                )
        return count

    def replace(self, table: str, run: str, rows: pa.Table) -> None:
        with self._translated(), tempfile.TemporaryFile() as file:
            _write_parquet(rows.to_reader(), file)
            with self._loaded(file, rows.schema) as loaded:
                self._transaction(
                    f"delete from {self._table(table)} where run = {_literal(run)}",
                    f"insert into {self._table(table)} select * from {loaded}",
                )

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _loaded(self, file: IO[bytes], schema: pa.Schema) -> Iterator[str]:
        """A table with the rows of a Parquet file, for as long as it is needed."""
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

    def _transaction(self, *statements: str) -> None:
        self._run("; ".join(["begin transaction", *statements, "commit transaction"]) + ";")

    def _run(self, statements: str) -> list[Any]:
        return [tuple(row) for row in self._client.query(statements).result()]

    @contextmanager
    def _translated(self) -> Iterator[None]:
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
    """What JSON escapes, and how, BigQuery's strings do, too."""
    return json.dumps(text, ensure_ascii=False)


_NAMES = {
    pa.string(): "STRING",
    pa.binary(): "BYTES",
    pa.bool_(): "BOOL",
    pa.int32(): "INT64",
    pa.int64(): "INT64",
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


# BigQuery gives back some types under their older names.
_OLDER = {"INTEGER": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL", "STRUCT": "RECORD"}


def _columns(fields: Any) -> dict[str, str]:
    return {field.name: _spelled(field) for field in fields}


def _spelled(field: Any) -> str:
    """A type without whether it may be null."""
    name = _OLDER.get(field.field_type, field.field_type)
    if field.fields:
        name += f"<{', '.join(f'{inner.name} {_spelled(inner)}' for inner in field.fields)}>"
    return f"ARRAY<{name}>" if field.mode == "REPEATED" else str(name)


_PLACE = "run, name, mode, mode_step, global_step, worker"

_SCALARS = f"""
create or replace view `{{dataset}}.scalars` as
select {_PLACE}, saved_at, scalar as value, collections
from `{{dataset}}.tensors`
where scalar is not null
"""

_STATISTICS = ", ".join(f"struct('{name}' as reduction, `{name}` as value)" for name in STATISTICS)

_REDUCTIONS = f"""
create or replace view `{{dataset}}.reductions` as
select {_PLACE}, saved.reduction, saved.value
from `{{dataset}}.tensors`
cross join unnest([{_STATISTICS}]) as saved
where saved.value is not null
"""
