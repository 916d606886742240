"""The catalogue of one run: its saved steps, rows of its index, and views over its files for an SQL engine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa

from ...engines.base import Answer, Database, Engine, MissingFile, RunFile
from ...engines.default import default_engine
from ...errors import FileError, MissingChunk, RunClosed, StorageError
from ...format import arrow_arrays
from ...format.index_footer import is_index_path
from ...format.index_log import IndexFiles, NewFile
from ...format.index_reader import IndexRows
from ...format.index_types import SavedTensor
from ...format.schema import FINDINGS, FINDINGS_SCHEMA, INDEX_SCHEMA, TENSORS_SCHEMA, end_path
from ...format.superseded import superseded_files
from ...mode import ModeKeys
from ...snapshot.saved_steps import SavedSteps
from ...snapshot.step_range import StepRange
from ...storage.open import FileSource, Storage
from .readable_files import CheckedFiles, ReadableFiles
from .row_cache import RowCache
from .views import Views

# Well below the time that files are kept after they were compacted.
_LISTED_SECONDS = 20.0

_T = TypeVar("_T")

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
"""What each worker was configured to save."""


class Catalogue:
    """The contents of a run, as of the last `refresh`. Safe to use from several threads.

    `range_steps` (a, b) leaves out every global step outside a <= step < b.
    """

    def __init__(self, storage: Storage, range_steps: StepRange | None = None, engine: Engine | None = None) -> None:
        self._storage, self._engine = storage, engine
        self._range = range_steps
        self._lock = threading.RLock()
        self.steps = SavedSteps()
        """The saved steps, as of the last `refresh`."""
        self._index_files = IndexFiles(storage)
        self._replacing: list[NewFile] = []
        self._listed_at = time.monotonic()
        self._derived: dict[tuple[Any, ...], Any] = {}
        self._rows = RowCache(self, IndexRows(storage), range_steps or (None, None))
        self._readable_files = ReadableFiles(storage)
        self._findings: list[str] = []
        self._collections: Sequence[Sequence[Any]] = ()
        self._closed = False
        self.version = 0
        """Grows with each refresh that found something new."""
        self.has_lost_steps = False
        """Whether steps were set aside that `steps` still has: a new catalogue does not."""

    @cached_property
    def _database(self) -> Database:
        if self._closed:
            raise RunClosed
        return (self._engine or default_engine()).connect([self._storage])

    @cached_property
    def _views(self) -> Views:
        views = Views(self._database, range_steps=self._range)
        views.add_files("tensors", lambda: self.version, self._index_paths)
        views.add_files("tensor_values", lambda: self.version, self._chunk_paths)
        views.add_files("findings", self._list_findings, self._finding_paths)
        views.add_files("superseded", object, self._superseded_paths)
        views.add_table("steps", lambda: self.version, lambda: self.steps.table())
        views.add_table("collections", lambda: self.version, lambda: arrow_arrays.table(COLLECTIONS, self._collections))
        return views

    def refresh(
        self,
        workers: Iterable[str],
        last_files: Mapping[str, str] = MappingProxyType({}),
        source: FileSource | None = None,
    ) -> bool:
        """Read the index files that are new since the last time. Return whether there were any.

        `last_files` are the last index files of the workers that have ended, by worker, as their end marks name them.
        The files are listed and read in the `source`, the run itself if None.
        """
        with self._lock:
            if source is not None:
                self._listed_at = -_LISTED_SECONDS  # the first query of an engine lists the run
            known, damaged = self.version, len(self.damaged)
            self._add(self._replacing)
            self._replacing, new = [], list[NewFile]()
            try:
                for worker in workers:
                    if worker in last_files:
                        self._index_files.expect(worker, last_files[worker], end_path(worker))
                    found = self._index_files.find_new(worker, source=source)
                    new += found
                    self._replace(found)
            finally:
                # Also those that were listed before an error, since no listing returns them again.
                self._add(new)
            if len(self.damaged) != damaged:
                self.changed()
            return self.version > known

    def changed(self) -> None:
        """Forget what was derived: something is new."""
        with self._lock:
            self.version += 1
            self._derived.clear()

    def derived(self, key: tuple[Any, ...], make: Callable[[], _T]) -> _T:
        """Return what `make` makes of what is known. It is kept until something is new."""
        with self._lock:
            if key not in self._derived:
                self._derived[key] = make()
            return self._derived[key]  # type: ignore[no-any-return]

    def rows(self, name: str, global_step: int, statistics: bool = False) -> list[SavedTensor]:
        """Return the rows of one tensor at one step, one a worker; with statistics only on request."""
        with self._lock:
            return self._rows.rows(name, global_step, statistics)

    def rows_of_step(self, global_step: int) -> dict[str, list[SavedTensor]]:
        """Return the rows of every tensor at one step, with statistics: by name, one a worker."""
        with self._lock:
            return self._rows.of_step(global_step)

    def rows_of_tensors(
        self,
        names: Sequence[str],
        mode: ModeKeys = ModeKeys.GLOBAL,
        span: tuple[int, int] | None = None,
        worker: str | None = None,
    ) -> list[SavedTensor]:
        """Return the rows of some tensors, of every worker, without statistics.

        With a span, those at steps of the mode with first <= step < end; with a worker, those of it. Others may be
        among them.
        """
        with self._lock:
            return self._rows.of_tensors(names, mode, span, worker)

    def rows_now(self, rows: Sequence[SavedTensor]) -> list[SavedTensor]:
        """Return the current rows of the same tensors, after a chunk was found missing.

        Compaction may have moved their values to another chunk.
        """
        with self._lock:
            self.recover()
            by_worker = ({each.worker: each for each in self.rows(row.name, row.global_step)} for row in rows)
            return [now.get(row.worker, row) for row, now in zip(rows, by_worker, strict=True)]

    def set_collections(self, rows: Sequence[Sequence[Any]]) -> None:
        """Set what each worker was configured to save, as rows of the table `collections`."""
        with self._lock:
            self._collections = rows
            self.changed()

    def sql(self, query: str, parameters: dict[str, Any] | None = None, timeout: float | None = None) -> Answer:
        """Return the rows of a user's query on the views of the run.

        Raises QueryRefused for anything but one SELECT, and QueryError for one that the engine cannot run.
        """
        with self._lock:
            self._find_compacted()
            return self._views.sql(query, parameters, timeout, self._after_recovery)

    @contextmanager
    def _after_recovery(self) -> Iterator[None]:
        """Find the files that replaced others, and let nobody change the catalogue inside the block."""
        with self._lock:
            self.recover()
            yield

    def index_files(self) -> list[RunFile]:
        """Return the index files that can be read, for an engine of another database."""
        with self._lock:
            self._find_compacted()
            return self._index_paths()

    def index_paths(self) -> list[str]:
        """Return the known index files, in the order in which they were found, of which only footers were verified."""
        with self._lock:
            self._find_compacted()
            return self.steps.files()

    def readable_index(self, paths: Sequence[str]) -> list[str]:
        """Return those of some index files that are whole; the others are among `damaged` afterwards.

        Raises:
            MissingFile: Some were superseded meanwhile: `index_paths` returns others now.
        """
        with self._lock:
            checked = list(self._readable_files.check_new(paths, INDEX_SCHEMA))
            if any(isinstance(error, MissingChunk) for _, error in checked) and self.recover():
                raise MissingFile("index files were superseded while they were read")
            self._check_awaited(checked)
            return [file.path for file in self._readable(checked)]

    def paths_between(self, mode: ModeKeys, first: int, end: int) -> list[str]:
        """Return the known index files with a step of a mode, or of all modes if it is GLOBAL, first <= step < end."""
        with self._lock:
            self._find_compacted()
            return self.steps.files_between(mode, (first, end))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if "_database" in self.__dict__:
                self._database.close()

    # New files.

    @property
    def damaged(self) -> dict[str, FileError]:
        """Index files that cannot be read, and why. The rest of the run can be."""
        return self._index_files.damaged

    @property
    def awaited(self) -> dict[str, FileError]:
        """The damaged files that may be read yet: the cause may pass."""
        return {path: error for path, error in self.damaged.items() if self._index_files.is_awaited(path)}

    def recover(self) -> bool:
        """Find the files that replaced others, after files were found missing or damaged.

        Return whether there were any. What is new in them waits for the next refresh.
        """
        with self._lock:
            found = self._index_files.rescan()
            self._replacing += found
            return self._replace(found)

    @property
    def waits_for_refresh(self) -> bool:
        """Whether `recover` found files whose new rows wait for the next refresh."""
        return bool(self._replacing)

    def _replace(self, found: Sequence[NewFile]) -> bool:
        """Read the rows of files that were compacted from the file that holds them now."""
        self.has_lost_steps |= self.steps.lack(found)
        steps, self.steps = self.steps, self.steps.compacted(found)
        if self.steps is steps:
            return False
        # Their rows are in another order now, and next to rows that are not known yet.
        self._rows.clear()
        self.changed()
        return True

    def _add(self, found: Sequence[NewFile]) -> None:
        if found:
            self.steps = self.steps.added(found, self._range)
            self.has_lost_steps |= self.steps.contradicts
            self.changed()

    # The files of the views.

    def _find_compacted(self) -> None:
        """Find the files that have superseded others, before an engine reads the superseded ones.

        Superseded files are deleted after a while, and a query that finds one missing has to be repeated. Remote
        folders are not listed for each query.
        """
        now = time.monotonic()
        if self._storage.is_local or now - self._listed_at > _LISTED_SECONDS:
            self.recover()
            self._listed_at = now

    def _index_paths(self) -> list[RunFile]:
        return self._files(SavedSteps.files, lambda paths: self._readable_files.check_new(paths, INDEX_SCHEMA))

    def _chunk_paths(self) -> list[RunFile]:
        return self._files(SavedSteps.chunk_paths, lambda paths: self._readable_files.check(paths, TENSORS_SCHEMA))

    def _files(
        self, named: Callable[[SavedSteps], list[str]], check: Callable[[Sequence[str]], CheckedFiles]
    ) -> list[RunFile]:
        """Return the files that the steps name, and that are whole. A file that was compacted is replaced."""
        while True:
            checked = list(check(named(self.steps)))
            is_missing = any(isinstance(error, MissingChunk) for _, error in checked)
            # What was listed a moment ago may have been compacted and deleted since.
            if not (is_missing and self.recover()):
                self._check_awaited(checked)
                return list(self._readable(checked))

    def _check_awaited(self, checked: CheckedFiles) -> None:
        """Raise the StorageError of an index file that could be read before, until it is taken for lost."""
        for path, error in checked:
            if error is None:
                self._index_files.succeed(path)
            elif isinstance(error, StorageError):
                self.changed()  # the next query reads it again
                self._index_files.fail(path)
                if is_index_path(path) and self._index_files.is_awaited(path):
                    raise error

    def _list_findings(self) -> list[str]:
        """List the files of findings, for each query: rules of other processes write them at any time."""
        self._findings = parquet_files(self._storage, FINDINGS)
        return self._findings

    def _finding_paths(self) -> list[RunFile]:
        return list(self._readable(self._readable_files.check(self._findings, FINDINGS_SCHEMA)))

    def _superseded_paths(self) -> list[RunFile]:
        checked = self._readable_files.check(superseded_files(self._storage), INDEX_SCHEMA)
        return [RunFile(self._storage, path) for path, error in checked if error is None]

    def _readable(self, checked: CheckedFiles) -> Iterator[RunFile]:
        """Yield the files that exist and are whole: one bad file would make a view useless."""
        for path, error in checked:
            if error is None:
                yield RunFile(self._storage, path)
            else:
                self._index_files.set_aside(path, error)


def parquet_files(storage: Storage, folder: str) -> list[str]:
    """Return the paths of the Parquet files directly in a folder of a run."""
    return [f"{folder}/{name}" for name in storage.list(folder) if name.endswith(".parquet")]


def collection_row(worker: str, saved: Sequence[str], document: dict[str, Any], run: str = "") -> tuple[Any, ...]:
    """Return a row of the table `collections` from a collection's JSON document."""
    return (
        run,
        worker,
        document["name"],
        document["name"] in saved,
        _encodable(document.get("include_regex")),
        _encodable(document.get("tensor_names")),
        json.dumps(document.get("save_config")),
        json.dumps(document.get("reduction_config")),
        document.get("save_histogram"),
    )


def _encodable(texts: Sequence[str] | None) -> list[str]:
    """Return texts that UTF-8 can encode: earlier releases wrote lone surrogates, too."""
    return [text.encode(errors="backslashreplace").decode() for text in texts or ()]
