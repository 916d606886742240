"""The files and small tables of one run that SQL reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..engines.base import LEFT_OUT, UnreadableFile
from ..errors import CorruptFile, FileError, MissingChunk, StorageError
from ..format import arrow_arrays
from ..format.footer import num_rows, schema_of
from ..format.index_footer import is_index_path
from ..format.schema import FINDINGS, FINDINGS_SCHEMA, INDEX_SCHEMA, TENSORS_SCHEMA, WorkerInfo
from ..format.verified_files import verified_files
from ..snapshot.index_files import superseded_files
from ..snapshot.saved_steps import SavedSteps
from ..snapshot.snapshot import Snapshot
from ..storage.open import Storage
from .counting_rows import UnsavedValues, superseded_rows

if TYPE_CHECKING:
    from .run_reader import RunReader

_TEXTS = pa.list_(pa.string())
COLLECTIONS = pa.schema(
    [
        ("run", pa.string()),
        ("worker", pa.string()),
        ("name", pa.string()),
        ("saved", pa.bool_()),
        ("include_regex", _TEXTS),
        ("tensor_names", _TEXTS),
        ("save_config", pa.string()),
        ("reduction_config", pa.string()),
        ("save_histogram", pa.bool_()),
    ]
)
"""The collections that each worker was configured to save."""

_TAIL_BYTES = 64 << 10
"""Enough for most footers."""
_WHOLE_BYTES = 4 << 20
"""A larger remote file is verified part by part, as an engine reads it."""
CheckedFiles = Sequence[tuple[str, FileError | None]]
"""Files, each with the error for which it cannot be read."""
_MISSING = "the index names this file, and it is missing"


class QuerySources:
    """The files and tables of one run for SQL, as of the reader's last refresh. Safe to use from several threads."""

    def __init__(self, reader: RunReader) -> None:
        self._reader, self._storage = reader, reader.storage
        self._readable_files = ReadableFiles(self._storage)
        self._unsaved_values = UnsavedValues(self._storage, self._readable_files.num_rows)

    @property
    def steps(self) -> SavedSteps:
        """The saved steps."""
        return self._reader.snapshot.steps

    def collections(self, run: str = "") -> pa.Table:
        """Return what each worker was configured to save, of a run of this name."""
        documents = ((info, each) for info in self._reader.snapshot.workers.infos for each in info.collections)
        return arrow_arrays.table(COLLECTIONS, [(run, *_collection_row(*each)) for each in documents])

    def superseded_rows(self, run: str = "") -> pa.Table:
        """Return the rows of index files whose tensor was saved again at the step, of a run of this name.

        Raises:
            FileNotFoundError: A file was deleted meanwhile.
        """
        left_out = self.rows_left_out().items()
        return arrow_arrays.table(LEFT_OUT, [(run, path, row) for path, rows in left_out for row in rows])

    def unsaved_values(self, run: str = "") -> pa.Table:
        """Return the rows of chunks that hold no saved value, of a run of this name.

        Raises:
            CorruptFile: An index file is damaged.
            FileNotFoundError: A file was deleted meanwhile.
        """
        found = self._unsaved_values.find(self.index_files(), self.chunk_files(), self.rows_left_out())
        return arrow_arrays.table(LEFT_OUT, [(run, *each) for each in found])

    def rows_left_out(self) -> Mapping[str, Sequence[int]]:
        """Return the rows of index files that do not count, by file.

        They are of a tensor that was saved again at the step, also in a file that cannot be read, or of a step that was
        saved again in another mode, or waits for the next refresh.

        Raises:
            CorruptFile: A compacted file is damaged.
            FileNotFoundError: A file was deleted meanwhile.
        """
        # A compacted file may hold a tensor that was saved again since.
        new = self.steps.added(self._reader.snapshot.waiting, self._reader.range_steps)
        repeated, unknown = new.repeated, self.steps.unknown
        if not repeated and not unknown:
            return {}
        held, readable = set(new.files_with({step for _, step, _ in repeated})), self.index_files()
        paths = readable if unknown else [path for path in readable if path in held]
        lost = new.repeated_last_in(held.difference(readable))
        return superseded_rows(self._storage, paths, repeated, unknown, lost)

    def readable_index(self, paths: Sequence[str]) -> list[str]:
        """Return those of some index files that are whole; the others are among `damaged` afterwards.

        Raises:
            UnreadableFile: Some were superseded meanwhile: `steps` names others now.
        """
        with self._reader.lock:
            return self._current(self._readable_files.check_new(paths, INDEX_SCHEMA))

    def recover(self) -> None:
        """Find the files that replaced others; if there are none, verify each file again when it is read next.

        Files never change, unless a disk or a person damages them.
        """
        if not self._reader.recover():
            self._readable_files.forget()

    # The files of the views.

    def is_exact(self, path: str) -> bool:
        """Return whether a file that can be read has exactly the columns of its view, in their order."""
        return path in self._readable_files.exact

    def index_files(self) -> list[str]:
        """Return the index files that can be read. Raises UnreadableFile if some were superseded meanwhile."""
        with self._reader.lock:
            return self.readable_index(self.steps.files())

    def chunk_files(self) -> list[str]:
        """Return the files of raw values that can be read. Raises UnreadableFile if some were superseded meanwhile."""
        with self._reader.lock:
            return self._current(self._readable_files.check(self.steps.chunk_paths(), TENSORS_SCHEMA))

    def _current(self, checked: CheckedFiles) -> list[str]:
        """Return the files that can be read. Raises UnreadableFile if one is missing that another has replaced."""
        missing = next((error for _, error in checked if isinstance(error, MissingChunk)), None)
        if missing and self._reader.recover():
            raise UnreadableFile(f"{missing}: it was deleted before the query read it")
        self._check_awaited(checked)
        return self._readable(checked)

    def finding_files(self) -> list[str]:
        """Return the files of findings that can be read."""
        paths = parquet_files(self._storage, FINDINGS)
        with self._reader.lock:
            return self._readable(self._readable_files.check(paths, FINDINGS_SCHEMA))

    def superseded_files(self) -> list[str]:
        """Return the superseded index files that can be read, of which no other holds all rows."""
        indexes = self._reader.snapshot.index.items()
        found = [path for worker, index in indexes for path in superseded_files(self._storage, worker, index)]
        return [path for path, error in self._readable_files.check(found, INDEX_SCHEMA) if error is None]

    def _check_awaited(self, checked: CheckedFiles) -> None:
        """Raise the StorageError of an index file that could be read before, until it is taken for lost."""
        self._reader.change(lambda now: now.with_readable(path for path, error in checked if error is None))
        for path, error in checked:
            if isinstance(error, StorageError):
                self._reader.change(partial(Snapshot.with_unread, path=path))  # the next query reads it again
                if is_index_path(path) and self._reader.snapshot.is_awaited(path):
                    raise error

    def _readable(self, checked: CheckedFiles) -> list[str]:
        """Return the files that exist and are whole: one bad file would make a view useless."""
        for _, error in checked:
            if error is not None:
                self._reader.set_aside(error)
        return [path for path, error in checked if error is None]


def parquet_files(storage: Storage, folder: str) -> list[str]:
    """Return the paths of the Parquet files directly in a folder of a run."""
    return [f"{folder}/{name}" for name in storage.list(folder) if name.endswith(".parquet")]


def _collection_row(info: WorkerInfo, document: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a row of the table `collections` from a collection's JSON document, without the run."""
    return (
        info.worker,
        document["name"],
        document["name"] in info.include_collections,
        document.get("include_regex") or [],
        document.get("tensor_names") or [],
        json.dumps(document.get("save_config")),
        json.dumps(document.get("reduction_config")),
        document.get("save_histogram"),
    )


class ReadableFiles:
    """Parquet files of one run, each of which is verified once: published files never change."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files = verified_files(storage)
        self._readable: set[str] = set()
        self.num_rows: dict[str, int] = {}
        """The facts about each file that was found readable."""
        self.exact: set[str] = set()
        """The readable files that have no other columns than those of their schema."""

    def forget(self) -> None:
        """Forget which files were found readable."""
        self._readable.clear()
        self._files.forget()

    def check(self, paths: Sequence[str], schema: pa.Schema) -> CheckedFiles:
        """Return each file with its error, if it has one: it is missing or damaged, or lacks columns of `schema`.

        The footer is verified, and all of a small file. An engine reads the rest through `VerifiedFiles`.
        """
        # The footers of new files are read next: of a remote file they come along.
        length = 8 if self._storage.is_local or self._readable.issuperset(paths) else _TAIL_BYTES
        tails = self._storage.read_tails(paths, length)
        return [(path, self._error(path, tail, schema)) for path, tail in zip(paths, tails, strict=True)]

    def _error(self, path: str, tail: object, schema: pa.Schema) -> FileError | None:
        if isinstance(tail, FileNotFoundError):
            return MissingChunk(path, _MISSING)
        if isinstance(tail, Exception):
            return tail if isinstance(tail, FileError) else CorruptFile(path, f"it cannot be read: {tail}")
        return None if path in self._readable else self._damage(path, schema)

    def check_new(self, paths: Sequence[str], schema: pa.Schema) -> CheckedFiles:
        """Return the same, without checking again the files that were found readable before.

        New files are verified as a whole, unless they are large and remote: a query reads all of them next, and one
        that is damaged must not be among them. What is in the cache is not fetched again.
        """
        new = [path for path in paths if path not in self._readable]
        self._storage.prefetch(new)
        damage = {path: self._damage(path, schema, whole=True) for path in new}
        return [(path, damage.get(path)) for path in paths]

    def _damage(self, path: str, schema: pa.Schema, whole: bool = False) -> FileError | None:
        try:
            footer = self._files.footer(path)
            if _check_columns(schema_of(footer), schema):
                self.exact.add(path)
            self.num_rows[path] = num_rows(footer)
            if whole and (self._storage.is_local or self._storage.size(path) <= _WHOLE_BYTES):
                self._files.check(path)
        except FileNotFoundError:
            return MissingChunk(path, _MISSING)
        except FileError as exc:
            return exc
        except ValueError as exc:
            return CorruptFile(path, f"an engine cannot read this file: {exc}")
        self._readable.add(path)
        return None


@lru_cache(maxsize=16)
def _check_columns(found: pa.Schema, expected: pa.Schema) -> bool:
    """Return whether the columns are the expected ones. Raises ValueError if one is missing, or of another type."""
    for field in expected:
        if field.name not in found.names:
            raise ValueError(f"it has no column {field.name}")
        if (kind := found.field(field.name).type) != field.type:
            raise ValueError(f"its column {field.name} is {kind}, not {field.type}")
    return bool(found.names == expected.names)
