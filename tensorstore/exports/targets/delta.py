"""The export into Delta Lake: `delta:folder`, `delta:s3://bucket/folder`, each table in a folder below it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...errors import ConfigurationError, ExportError, MissingExtra, TableMismatch
from ..batches import ahead
from ..target import LEDGER, LEDGER_SCHEMA, Held, Part, Position, Target, differences, shown

try:
    from deltalake import ColumnProperties, CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError
except ModuleNotFoundError as exc:
    raise MissingExtra("deltalake", "warehouse", "an export into Delta Lake") from exc

_UNSUITED = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]|[\[\]\\^|%]")
"""Signs of a path that delta-rs takes for those of a URL, also where they are encoded."""
_KEY = pa.schema([LEDGER_SCHEMA.field(name) for name in ("run", "identity", "table_name", "worker")])


class DeltaLake(Target):
    """A folder of Delta tables.

    The last step that a table holds of a worker is the version of an application transaction, which Delta commits
    together with the rows. Delta returns such versions one at a time, by their names: so the table `exports` has a row
    for each that may exist. The options are those of delta-rs for object stores.
    """

    def __init__(self, url: str, **storage_options: Any) -> None:
        self._folder = url.partition(":")[2].rstrip("/")
        if not self._folder.strip("/"):
            raise ConfigurationError("delta: names no folder; write delta:lake, or delta:s3://bucket/lake")
        self._name = f"delta:{shown(self._folder)}"
        if "://" not in self._folder:
            path = os.path.abspath(os.path.expanduser(self._folder.removeprefix("//")))
            if sign := _UNSUITED.search(path):
                reason = f"Delta Lake's library cannot open a path with {sign[0]!r}; choose a folder without it"
                raise ExportError(self._name, reason)
            self._folder = Path(path).as_uri()
        self._options = {key: str(value) for key, value in storage_options.items()}

    def prepare(self, tables: Mapping[str, pa.Schema]) -> None:
        for table, schema in tables.items():
            with self._translated():
                made = DeltaTable.create(
                    self._path(table), schema, mode="ignore", storage_options=self._options or None
                ).to_pyarrow_dataset()
            found = {field.name: _kind(field.type) for field in made.schema}
            if difference := differences({field.name: _kind(field.type) for field in schema}, found):
                raise TableMismatch(self._name, table, difference)

    def held(self, run: str) -> Held | None:
        keys = [key for key in self._keys if key[0] == run]
        if not keys:
            return None
        last_step = {Position(table, worker): self._last_step(run, table, worker) for _, _, table, worker in keys}
        return Held(keys[0][1], last_step)

    def names(self) -> set[tuple[str, str]]:
        return {(identity, run) for run, identity, _, _ in self._keys}

    @cached_property
    def _keys(self) -> set[tuple[str, str, str, str]]:
        """The run, identity, table and worker of all rows that may be in the tables."""
        with self._translated():
            if not DeltaTable.is_deltatable(self._path(LEDGER), self._options or None):
                return set()
            found = DeltaTable(self._path(LEDGER), storage_options=self._options or None).to_pyarrow_table()
            return set(zip(*(found[name].to_pylist() for name in _KEY.names), strict=True))

    def _last_step(self, run: str, table: str, worker: str) -> int:
        with self._translated():
            return _last_step(self._open(table), run, worker)

    def _open(self, table: str) -> DeltaTable:
        return DeltaTable(self._path(table), storage_options=self._options or None)

    def _add_key(self, part: Part) -> None:
        key = (part.run, part.identity, part.table, part.worker)
        if key not in self._keys:
            rows = pa.Table.from_pydict({name: [value] for name, value in zip(_KEY.names, key, strict=True)}, _KEY)
            with self._translated():
                write_deltalake(self._path(LEDGER), rows, mode="append", storage_options=self._options or None)
            self._keys.add(key)

    def write(self, part: Part) -> int:
        self._add_key(part)
        with self._translated():
            table = self._open(part.table)
        if _last_step(table, part.run, part.worker) != part.after:
            raise self._is_under_way()
        count = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for batch in ahead(part.reader()):
                count += batch.num_rows
                yield batch

        properties = CommitProperties(
            app_transactions=[Transaction(_application(part.run, part.worker), part.last_step)], max_commit_retries=0
        )
        rows = pa.RecordBatchReader.from_batches(part.schema, counted())
        with self._translated():
            # The table as it was when it was opened: a later commit of another export makes this one fail.
            write_deltalake(
                table, rows, mode="append", commit_properties=properties, writer_properties=_writer(part.schema)
            )
        return count

    def replace(self, table: str, run: str, rows: pa.Table) -> None:
        quoted = run.replace("'", "''")
        with self._translated():
            write_deltalake(
                self._path(table),
                rows,
                mode="overwrite",
                predicate=f"run = '{quoted}'",
                writer_properties=_writer(rows.schema),
                storage_options=self._options or None,
            )

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _path(self, table: str) -> str:
        return f"{self._folder}/{table}"

    def _is_under_way(self) -> ExportError:
        return ExportError(self._name, "another export is under way; export again once it is done")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except CommitFailedError as exc:
            raise self._is_under_way() from exc
        except (DeltaError, OSError, ValueError) as exc:
            raise ExportError(self._name, str(exc)) from exc
        except BaseException as exc:
            if type(exc).__name__ != "PanicException":
                raise
            raise ExportError(self._name, f"delta-rs failed: {exc}") from exc  # it is no Exception


def _writer(schema: pa.Schema) -> WriterProperties:
    """Return how files are written: without bounds of floating-point numbers, which leave NaN out."""
    unbounded = ColumnProperties(statistics_enabled="NONE")
    columns = {field.name: unbounded for field in schema if pa.types.is_floating(field.type)}
    return WriterProperties(compression="ZSTD", compression_level=1, column_properties=columns)


def _application(run: str, worker: str) -> str:
    """Return the name under which Delta keeps the last step."""
    return json.dumps(["tensortrial", run, worker])


def _last_step(table: DeltaTable, run: str, worker: str) -> int:
    version = table.transaction_version(_application(run, worker))
    return -1 if version is None else int(version)


def _kind(kind: pa.DataType) -> str:
    """Return a type in words, the same for every name of a list's items and every layout of texts."""
    return str(kind).replace("large_", "").replace("element:", "item:").replace("_view", "")
