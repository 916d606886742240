"""The base of exports into a folder of files, on a disk or in an object store."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from ...errors import AlreadyPublished, ConfigurationError, ExportError, StorageError
from ...format.documents import read_document
from ...format.schema import path_component
from ...storage.open import Storage, canonical_url, open_storage, translated
from ..tables import GROWING, SCHEMAS
from ..target import LEDGER, Held, Part, Position, Replacement, Target, reader_of


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


@dataclass(frozen=True)
class _Note:
    run: str
    identity: str
    digests: Mapping[str, str] = field(default_factory=dict)
    """The digests of the run's rows in small tables, by the name of the table."""


class Folder(Target):
    """A folder with a subfolder for each table.

        tensors/RUN/WORKER/000000000000-000000000999-DIGEST.parquet    the rows of these global steps
        runs/RUN.parquet                                               a small table: replaced if it has changed
        exports/RUN.json                                               the run of this name, and its small tables

    The file of a part appears whole under its name, so its existence shows that its steps are exported, and its digest
    shows whether they still count. Names of runs and workers are percent-encoded; each file also has them as columns.
    Options are those of fsspec.
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
                if path := self._any_file(table):
                    self._check_columns(table, self._columns(schema), self._read_columns(path))

    def held(self, runs: Sequence[str]) -> dict[str, Held]:
        found = {}
        with self._named():
            for run in runs:
                with suppress(FileNotFoundError):
                    note = self._noted(_note(run))
                    parts = dict(each for table in GROWING for each in self._parts(table, run))
                    small = {Position(table, ""): {-1: digest} for table, digest in note.digests.items()}
                    found[run] = Held(note.identity, parts | small)
        return found

    def names(self) -> set[tuple[str, str]]:
        with self._named():
            found = [self._noted(f"{LEDGER}/{entry}") for entry in self._storage.list(LEDGER)]
        return {(each.identity, each.run) for each in found}

    def write(self, parts: Sequence[Part]) -> None:
        with self._named():
            for part in parts:
                self._note_run(part.run, part.identity)
                if part.goes_back:
                    self._rewind(part)
                if part.last_step > part.after:
                    self._write_file(part)

    def _write_file(self, part: Part) -> None:
        path = f"{_worker_folder(part)}/{part.name}-{part.digest}{self.suffix}"
        sink = self._storage.sink(path)
        try:
            with translated(path, "write"):
                schema = self._stream(part.schema)
                self._write(sink.file, schema, reader_of([part], schema))
            self._check_alone(part, part.after)
            sink.publish()
        except AlreadyPublished as exc:
            raise self._is_under_way(part.run) from exc
        finally:
            sink.abort()

    def _rewind(self, part: Part) -> None:
        """Delete the files that a part replaces, from the last one, so that the remaining export is always complete."""
        self._check_alone(part, part.held)
        for path in reversed(self._worker_files(part)):
            if _last_step(path) > part.after:
                self._storage.remove(path)

    def replace(self, table: str, replacements: Sequence[Replacement]) -> None:
        for each in replacements:
            file = pa.BufferOutputStream()
            self._write(file, each.rows.schema, each.rows.to_batches())
            with self._named():
                note = self._note_run(each.run, each.identity)
                self._storage.replace(self._small_file(table, each.run), memoryview(file.getvalue()))
                # The note is written last: without it, the next export writes the file again.
                note = replace(note, digests={**note.digests, table: each.digest})
                self._storage.replace(_note(each.run), json.dumps(asdict(note)).encode())

    def remove(self, run: str) -> None:
        with self._named():
            for table in SCHEMAS:
                for path in (*self._files(table, run), self._small_file(table, run)):
                    self._storage.remove(path)
            self._storage.remove(_note(run))

    def _small_file(self, table: str, run: str) -> str:
        """Return the path of the file with the rows of a run in a small table."""
        return f"{_folder(table, run)}{self.suffix}"

    def _parts(self, table: str, run: str) -> Iterator[tuple[Position, dict[int, str]]]:
        """Yield the workers in a table, with the last steps and the digests of their parts."""
        for worker, paths in groupby(self._files(table, run), lambda path: path.split("/")[-2]):
            yield Position(table, unquote(worker)), {_last_step(path): _digest(path) for path in paths}

    def _files(self, table: str, run: str) -> list[str]:
        """Return the files of a run in a table, by worker and step."""
        return [path for path in self._storage.list_after(_folder(table, run)) if path.endswith(self.suffix)]

    def _worker_files(self, part: Part) -> list[str]:
        """Return the files of the part's worker, in the order of steps."""
        folder = _worker_folder(part)
        return [f"{folder}/{name}" for name in sorted(self._storage.list(folder)) if name.endswith(self.suffix)]

    def _note_run(self, run: str, identity: str) -> _Note:
        """Return the note of a run. Create it if it is missing."""
        note = _Note(run, identity)
        try:
            self._storage.create(_note(run), json.dumps(asdict(note)).encode())
        except AlreadyPublished:
            note = self._noted(_note(run))
            if note.identity != identity:
                raise self._is_under_way(run) from None
        return note

    def _noted(self, path: str) -> _Note:
        try:
            return read_document(self._storage.read_document(path), _Note)
        except ValueError as exc:  # a CorruptFile is one
            raise ExportError(
                self._name, f"{path} is damaged: {exc}; delete it and the files of its run, and export the run again"
            ) from exc

    def _check_alone(self, part: Part, last_step: int) -> None:
        """Raise ExportError if another export has written rows of the same worker in the meantime.

        Two concurrent exports would both write the new rows, in files of different ranges.
        """
        if max(map(_last_step, self._worker_files(part)), default=-1) != last_step:
            raise self._is_under_way(part.run)

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
        """Return the schema of the batches that `_write` receives for a table."""
        return schema

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Raise a StorageError of the block as an ExportError that names the target."""
        try:
            yield
        except StorageError as exc:
            raise ExportError(self._name, str(exc)) from exc

    @abstractmethod
    def _write(self, file: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Write one file."""

    @abstractmethod
    def _columns(self, schema: pa.Schema) -> dict[str, str]:
        """Return the columns of a table's file, with their types as the file stores them."""

    @abstractmethod
    def _read_columns(self, path: str) -> dict[str, str]:
        """Return the columns of an existing file, in the form of `_columns`."""


def _folder(table: str, run: str) -> str:
    return f"{table}/{_component(run)}"


def _component(name: str) -> str:
    """Return a name as one path component that does not begin with `_`, because pandas and Spark ignore such files."""
    quoted = path_component(name)
    return f"%5F{quoted[1:]}" if quoted.startswith("_") else quoted


def _worker_folder(part: Part) -> str:
    return f"{_folder(part.table, part.run)}/{_component(part.worker)}"


def _last_step(path: str) -> int:
    """Return the last step of FIRST-LAST-DIGEST.suffix."""
    return int(_name(path)[1])


def _digest(path: str) -> str:
    """Return the digest of FIRST-LAST-DIGEST.suffix."""
    return _name(path)[2]


def _name(path: str) -> list[str]:
    return path.rpartition("/")[2].partition(".")[0].split("-")


def _note(run: str) -> str:
    return f"{_folder(LEDGER, run)}.json"
