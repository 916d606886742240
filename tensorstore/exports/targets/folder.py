"""The export into a folder of plain files, on a disk or in an object store: what all kinds of files share."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from ...errors import AlreadyPublished, ConfigurationError, ExportError, StorageError, TableMismatch
from ...format.schema import path_component
from ...storage.open import Storage, canonical_url, open_storage, translated
from ..tables import GROWING
from ..target import LEDGER, Held, Part, Position, Target, differences


def open_folder(url: str, storage_options: Mapping[str, Any], example: str = "exports") -> Storage:
    """Return the storage of a target's URL: `csv:exports`, `csv:s3://bucket/exports`."""
    scheme, _, address = url.partition(":")
    address = address if "://" in address else address.removeprefix("//")
    if not address:
        raise ConfigurationError(
            f"{scheme}: names no folder; write {scheme}:{example}, or {scheme}:s3://bucket/{example}"
        )
    if "://" not in canonical_url(address):
        for option in storage_options:
            raise ConfigurationError(f"{scheme}: has no option {option!r} for a folder on a disk")
    return open_storage(address, storage_options)


class Folder(Target):
    """A folder with one below it for each table.

        tensors/RUN/WORKER/000000000000-000000000999.parquet    the rows of these global steps
        runs/RUN.parquet                                        a small table: replaced each time
        exports/RUN.json                                        the identity of the run of this name

    The file of a part appears whole under its name, so its existence says which steps are exported. Names of runs and
    workers are percent-encoded; each file has them as columns, too. The options are those that fsspec takes.
    """

    unsigned = True
    suffix: str
    """The suffix of the files, with the dot."""

    def __init__(self, url: str, **storage_options: Any) -> None:
        self._storage = open_folder(url, storage_options)
        self._name = f"{url.partition(':')[0]}:{self._storage.url}"

    def prepare(self, tables: Mapping[str, pa.Schema]) -> None:
        for table, schema in tables.items():
            with self._named():
                path = self._any_file(table)
                difference = differences(self._columns(schema), self._read_columns(path)) if path else []
            if difference:
                raise TableMismatch(self._name, table, difference)

    def held(self, run: str) -> Held | None:
        try:
            with self._named():
                identity = json.loads(self._storage.read(_note(run)))["identity"]
                return Held(identity, {at: last for table in GROWING for at, last in self._positions(table, run)})
        except FileNotFoundError:
            return None

    def names(self) -> set[tuple[str, str]]:
        with self._named():
            paths = [f"{LEDGER}/{entry}" for entry in self._storage.list(LEDGER)]
            found = [json.loads(self._storage.read(path)) for path in paths]
        return {(each["identity"], each["run"]) for each in found}

    def write(self, part: Part) -> int:
        with self._named():
            return self._write_file(part)

    def _write_file(self, part: Part) -> int:
        self._note_run(part.run, part.identity)
        path = f"{_folder(part.table, part.run)}/{path_component(part.worker)}/{part.name}{self.suffix}"
        sink = self._storage.sink(path)
        try:
            with translated(path, "write"):
                schema = self._stream(part.schema)
                count = self._write(sink.file, schema, part.reader(schema))
            self._check_alone(part)
            sink.publish()
        except AlreadyPublished as exc:
            raise self._is_under_way(part.run) from exc
        finally:
            sink.abort()
        return count

    def replace(self, table: str, run: str, rows: pa.Table) -> None:
        file = pa.BufferOutputStream()
        self._write(file, rows.schema, rows.to_batches())
        with self._named():
            self._storage.replace(f"{_folder(table, run)}{self.suffix}", memoryview(file.getvalue()))

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _positions(self, table: str, run: str) -> Iterator[tuple[Position, int]]:
        """Yield the workers in a table with their steps. Names of files are in the order of steps."""
        for path in self._storage.list_after(_folder(table, run)):
            *_, worker, name = path.split("/")
            if name.endswith(self.suffix):
                yield Position(table, unquote(worker)), int(name.removesuffix(self.suffix).partition("-")[2])

    def _note_run(self, run: str, identity: str) -> None:
        try:
            self._storage.create(_note(run), json.dumps({"run": run, "identity": identity}).encode())
        except AlreadyPublished:
            if json.loads(self._storage.read(_note(run)))["identity"] != identity:
                raise self._is_under_way(run) from None

    def _check_alone(self, part: Part) -> None:
        """Raise ExportError if another export has written rows of the same worker in the meantime.

        Two exports at once would both move what is new, in files of other ranges.
        """
        position = Position(part.table, part.worker)
        if dict(self._positions(part.table, part.run)).get(position, -1) != part.after:
            raise self._is_under_way(part.run)

    def _is_under_way(self, run: str) -> ExportError:
        return ExportError(self._name, f"another export of {run} is under way; export again once it is done")

    def _any_file(self, table: str) -> str | None:
        for entry in self._storage.list(table):
            path = f"{table}/{entry}"
            if entry.endswith(self.suffix):
                return path
            for inside in self._storage.list_after(path):
                if inside.endswith(self.suffix):
                    return inside
        return None

    def _stream(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with which rows of a table come to `_write`."""
        return schema

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Raise a StorageError of the block as an ExportError that names the target."""
        try:
            yield
        except StorageError as exc:
            raise ExportError(self._name, str(exc)) from exc

    @abstractmethod
    def _write(self, file: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """Write one file. Return the number of rows."""

    @abstractmethod
    def _columns(self, schema: pa.Schema) -> dict[str, str]:
        """Return the columns that a file of the table has, with their types, as far as the file says them."""

    @abstractmethod
    def _read_columns(self, path: str) -> dict[str, str]:
        """Return the columns of an existing file in the same way."""


def _folder(table: str, run: str) -> str:
    return f"{table}/{path_component(run)}"


def _note(run: str) -> str:
    return f"{_folder(LEDGER, run)}.json"
