"""The export into Delta Lake: `delta:folder`, `delta:s3://bucket/folder`, each table in a folder below it."""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import PyFileSystem
from pyarrow.parquet import FileMetaData

from ...errors import ConfigurationError, ExportError, importing
from ...format.arrow_arrays import encoded
from ..batches import ahead
from ..tables import SCHEMAS, columns_of
from ..target import LEDGER, LEDGER_SCHEMA, Held, Part, Position, Replacement, Target, reader_of, shown
from .parquet_file import write_parquet

with importing("deltalake", "warehouse", "an export into Delta Lake"):
    from deltalake import ColumnProperties, CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.fs import DeltaStorageHandler
    from deltalake.transaction import AddAction

_COLORS = re.compile(r"\x1b\[[0-9;]*m")
"""The codes of colors in delta-rs' errors of object stores."""
_UNSUITED = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]|[\[\]\\^|%]")
"""Characters of a path that delta-rs treats as those of a URL, even if they are encoded."""
_BOUNDED = ("run", "worker", "global_step")
"""The columns by which rows of a part or a run are selected."""
_KEY = pa.schema([LEDGER_SCHEMA.field(name) for name in ("run", "identity", "table_name", "worker")])


class DeltaLake(Target):
    """A folder of Delta tables.

    The last step of a worker in a table, and its digest, are kept as versions of application transactions, which Delta
    commits together with the rows. Delta returns such versions one at a time, by their names, so the table `exports`
    lists all that may exist. A worker that went back is exported again from its first step on. Options are those of
    delta-rs for object stores.
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
            if unknown := storage_options.keys() - {"allow_unsafe_rename", "mount_allow_unsafe_rename"}:
                raise ConfigurationError(f"delta: has no option {min(unknown)!r} for a folder on a disk")
            self._folder = Path(path).as_uri()
        self._options = {key: str(value) for key, value in storage_options.items()}

    def prepare(self, tables: Mapping[str, pa.Schema]) -> None:
        for table, schema in tables.items():
            with self._translated():
                made = DeltaTable.create(
                    self._path(table), schema, mode="ignore", storage_options=self._options or None
                ).to_pyarrow_dataset()
            found = columns_of(made.schema)
            self._check_columns(table, columns_of(schema), found)

    def held(self, runs: Sequence[str]) -> dict[str, Held]:
        found: dict[str, Held] = {}
        tables = {table: self._open(table) for table in {key[2] for key in self._keys}}
        wanted = set(runs)
        for run, identity, table, worker in self._keys:
            if run in wanted:
                digests = found.setdefault(run, Held(identity, {})).digests
                digests[Position(table, worker)] = _exported(tables[table], run, worker)
        return found

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

    def _open(self, table: str) -> DeltaTable:
        with self._translated():
            return DeltaTable(self._path(table), storage_options=self._options or None)

    def _add_keys(self, written: Sequence[Part | Replacement], table: str) -> None:
        keys = {(each.run, each.identity, table, _worker(each)) for each in written} - self._keys
        if keys:
            rows = pa.Table.from_pylist([dict(zip(_KEY.names, key, strict=True)) for key in sorted(keys)], _KEY)
            with self._translated():
                write_deltalake(self._path(LEDGER), rows, mode="append", storage_options=self._options or None)
            self._keys.update(keys)

    def write(self, parts: Sequence[Part]) -> None:
        self._add_keys(parts, parts[0].table)
        # A commit adds rows, or replaces the rows that satisfy a condition by others that satisfy it.
        for together in ([part for part in parts if part.goes_back], [part for part in parts if not part.goes_back]):
            if together:
                self._write(together)

    def _write(self, parts: Sequence[Part]) -> None:
        # The table at its current version: a later commit of another export makes this one fail.
        table = self._open(parts[0].table)
        if any(max(_exported(table, part.run, part.worker), default=-1) != part.held for part in parts):
            raise self._is_under_way()
        schema, replaced = parts[0].schema, " or ".join(_rows_after(part) for part in parts if part.goes_back)
        notes = [each for part in parts for each in _noted(part.run, part.worker, part.last_step, part.digest)]
        commit = CommitProperties(app_transactions=notes, max_commit_retries=0)
        with self._translated():
            if not replaced and not table.metadata().partition_columns:
                added = self._data_file(table, encoded(schema), parts)
                table.create_write_transaction([added], "append", table.schema(), commit_properties=commit)
                return
            rows = pa.RecordBatchReader.from_batches(schema, ahead(reader_of(parts)))
            if replaced:
                self._overwrite(table, rows, replaced, commit)
            else:
                write_deltalake(table, rows, mode="append", commit_properties=commit, writer_properties=_writer(schema))

    def _data_file(self, table: DeltaTable, schema: pa.Schema, parts: Sequence[Part]) -> AddAction:
        """Write a new file in the table's folder, faster than delta-rs does. Return the action that adds it."""
        path = f"{uuid.uuid4()}.parquet"
        files = PyFileSystem(DeltaStorageHandler(table.table_uri, self._options))
        with files.open_output_stream(path) as file:
            footer = write_parquet(file, schema, reader_of(parts, schema))
        size, now = files.get_file_info(path).size, int(time.time() * 1000)
        return AddAction(path, size, {}, now, True, json.dumps(_statistics(footer)))

    def replace(self, table: str, replacements: Sequence[Replacement]) -> None:
        self._add_keys(replacements, table)
        rows = pa.concat_tables(each.rows for each in replacements)
        notes = [note for each in replacements for note in _noted(each.run, "", -1, each.digest)]
        runs = ", ".join(_literal(each.run) for each in replacements)
        with self._translated():
            self._overwrite(self._open(table), rows, f"run in ({runs})", CommitProperties(app_transactions=notes))

    def rows(self, table: str, run: str) -> pa.Table:
        with self._translated():
            return self._open(table).to_pyarrow_dataset().to_table(filter=pc.field("run") == run)

    def _overwrite(self, table: DeltaTable, rows: Any, predicate: str, commit: CommitProperties) -> None:
        """Replace the rows that satisfy a condition."""
        writer = _writer(rows.schema)
        write_deltalake(
            table, rows, mode="overwrite", predicate=predicate, commit_properties=commit, writer_properties=writer
        )

    def remove(self, run: str) -> None:
        keys = [key for key in self._keys if key[0] == run]
        for _, _, name, worker in keys:
            notes = CommitProperties(app_transactions=_noted(run, worker, -1, "0"))
            with self._translated():
                self._open(name).delete(f"run = {_literal(run)}", _writer(SCHEMAS[name]), commit_properties=notes)
        with self._translated():
            self._open(LEDGER).delete(f"run = {_literal(run)}")
        self._keys.difference_update(keys)

    def _path(self, table: str) -> str:
        return f"{self._folder}/{table}"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except CommitFailedError as exc:
            raise self._is_under_way() from exc
        except (DeltaError, OSError, ValueError) as exc:
            raise ExportError(self._name, _COLORS.sub("", str(exc))) from exc
        except BaseException as exc:
            if type(exc).__name__ != "PanicException":
                raise
            raise ExportError(self._name, f"delta-rs failed: {exc}") from exc  # it is no Exception


def _writer(schema: pa.Schema) -> WriterProperties:
    """Return the properties of files: no bounds of floating-point columns, because bounds ignore NaN."""
    unbounded = ColumnProperties(statistics_enabled="NONE")
    columns = {field.name: unbounded for field in schema if pa.types.is_floating(field.type)}
    return WriterProperties(compression="ZSTD", compression_level=1, column_properties=columns)


def _statistics(footer: FileMetaData) -> dict[str, Any]:
    """Return a file's statistics for Delta's log: the number of rows, and the bounds by which queries skip it."""
    least, greatest = dict[str, Any](), dict[str, Any]()
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for number in range(footer.num_columns if groups else 0):
        if (name := footer.schema.column(number).path) in _BOUNDED:
            bounds = [group.column(number).statistics for group in groups]
            least[name], greatest[name] = min(each.min for each in bounds), max(each.max for each in bounds)
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": {}}


def _noted(run: str, worker: str, last_step: int, digest: str) -> list[Transaction]:
    """Return the entries that Delta keeps for a part or a small table: two numbers, each under a name."""
    return [
        Transaction(_application(run, worker), last_step),
        Transaction(_application(run, worker, "digest"), int(digest, 16)),
    ]


def _exported(table: DeltaTable, run: str, worker: str) -> dict[int, str]:
    """Return the last step of a worker in a table, with its digest."""
    version = table.transaction_version(_application(run, worker))
    digest = table.transaction_version(_application(run, worker, "digest"))
    return {} if version is None else {int(version): f"{int(digest or 0):015x}"}


def _application(*names: str) -> str:
    """Return a name under which Delta keeps a number."""
    return json.dumps(["tensortrial", *names])


def _worker(written: Part | Replacement) -> str:
    return written.worker if isinstance(written, Part) else ""


def _rows_after(part: Part) -> str:
    """Return the condition of the rows that a part replaces."""
    return f"(run = {_literal(part.run)} and worker = {_literal(part.worker)} and global_step > {part.after})"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
