"""SQL over the views of one run, or of many that were opened together."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from ..engines.base import LEFT_OUT, Answer, Database, Engine, FilesView, RunFile, UnreadableFile, plain
from ..errors import ConfigurationError, CorruptFile, FileError, MissingChunk, MissingIndexFile, RunClosed, StorageError
from ..format import arrow_arrays
from ..format.index_types import is_index_path
from ..format.schema import FINDINGS, FINDINGS_SCHEMA, INDEX, INDEX_SCHEMA, TENSORS, TENSORS_SCHEMA
from ..format.verified_files import verified_files
from ..snapshot.saved_steps import SavedSteps, StepRange
from ..snapshot.snapshot import Snapshot, repeated, superseded_files
from ..storage.open import Storage
from .counting_rows import UnsavedValues, superseded_rows

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
"""The columns of the view `collections`."""

_TAIL_BYTES = 64 << 10
"""The bytes that are read from the end of a file. Most footers fit into them."""
_WHOLE_BYTES = 4 << 20
"""A larger remote file is verified part by part, as an engine reads it."""
CheckedFiles = Sequence[tuple[str, FileError | None]]
"""Files, each with the error that prevents reading it, or None."""
_SCHEMAS = {INDEX: INDEX_SCHEMA, TENSORS: TENSORS_SCHEMA, FINDINGS: FINDINGS_SCHEMA}
"""The columns of the files, by the folder of the run."""
_MISSING = "the index names this file, but it is missing"


class SnapshotHolder(Protocol):
    """The holder of a run's snapshot, which it replaces by newer ones: the gateway to a run."""

    storage: Storage
    range_steps: StepRange | None
    version: int

    @property
    def lock(self) -> AbstractContextManager[Any]: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def sources(self) -> QuerySources: ...
    def change(self, changed: Callable[[Snapshot], Snapshot]) -> bool: ...
    def recover(self) -> bool: ...
    def exclude(self, error: FileError) -> None: ...


class QuerySources:
    """The files and tables of one run for SQL, as of the reader's last refresh. Safe to use from several threads."""

    def __init__(self, reader: SnapshotHolder) -> None:
        self._reader, self._storage = reader, reader.storage
        self._files = verified_files(self._storage)
        self._unsaved_values = UnsavedValues(self._storage)

    @property
    def steps(self) -> SavedSteps:
        """The saved steps."""
        return self._reader.snapshot.steps

    def collections(self, run: str = "") -> pa.Table:
        """Return the rows of the view `collections` for a run of this name."""
        rows = [
            (
                run,
                info.worker,
                document["name"],
                document["name"] in info.include_collections,
                document.get("include_regex") or [],
                document.get("tensor_names") or [],
                json.dumps(document.get("save_config")),
                json.dumps(document.get("reduction_config")),
                document.get("save_histogram"),
            )
            for info in self._reader.snapshot.workers.infos
            for document in info.collections
        ]
        return arrow_arrays.table(COLLECTIONS, rows)

    def superseded_rows(self, run: str = "") -> pa.Table:
        """Return the rows of index files whose tensor was saved again at the step, for a run of this name.

        Raises:
            FileNotFoundError: A file was deleted meanwhile.
        """
        left_out = self.rows_left_out().items()
        return arrow_arrays.table(LEFT_OUT, [(run, path, row) for path, rows in left_out for row in rows])

    def unsaved_values(self, run: str = "") -> pa.Table:
        """Return the rows of chunks that hold no saved value, for a run of this name.

        Raises:
            CorruptFile: An index file is damaged.
            FileNotFoundError: A file was deleted meanwhile.
        """
        found = self._unsaved_values.find(self.index_files(), self.chunk_files(), self.rows_left_out())
        return arrow_arrays.table(LEFT_OUT, [(run, *each) for each in found])

    def rows_left_out(self) -> Mapping[str, Sequence[int]]:
        """Return the rows of index files that do not count, by file.

        Their tensor was saved again at the step, perhaps in a file that cannot be read, or their step was saved again
        in another mode, or waits for the next refresh.

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
        """Return the undamaged ones of some index files. The others are among `damaged` afterwards.

        Raises:
            UnreadableFile: Some were superseded meanwhile, so that `steps` now names others.
        """
        with self._reader.lock:
            return self._current(self._checked_index(paths))

    def recover(self) -> None:
        """Find the files that replaced others. If there are none, verify each file again when it is next read.

        Files never change, unless a disk or a person damages them.
        """
        if not self._reader.recover():
            self._files.forget()

    # The files of the views.

    def is_exact(self, path: str) -> bool:
        """Return whether a file that can be read has exactly the columns of its view, in their order."""
        schema = _SCHEMAS[path.partition("/")[0]]
        return bool(self._files.described(path, schema)[0].names == schema.names)

    def index_files(self) -> list[str]:
        """Return the index files that can be read. Raise UnreadableFile if some were superseded meanwhile."""
        with self._reader.lock:
            return self.readable_index(self.steps.files())

    def chunk_files(self) -> list[str]:
        """Return the files of raw values that can be read. Raise UnreadableFile if some were superseded meanwhile."""
        with self._reader.lock:
            return self._current(self._checked(self.steps.chunk_paths(), TENSORS_SCHEMA))

    def _current(self, checked: CheckedFiles) -> list[str]:
        """Return the files that can be read. Raise UnreadableFile if another file has replaced a missing one."""
        missing = next((error for _, error in checked if isinstance(error, FileNotFoundError)), None)
        if missing and self._reader.recover():
            raise UnreadableFile(f"{missing}: it was deleted before the query read it")
        self._check_pending(checked)
        return self._readable(checked)

    def finding_files(self) -> list[str]:
        """Return the files of findings that can be read."""
        paths = parquet_files(self._storage, FINDINGS)
        with self._reader.lock:
            return self._readable(self._checked(paths, FINDINGS_SCHEMA))

    def superseded_files(self) -> list[str]:
        """Return the readable superseded index files that have rows which no other file has."""
        found = superseded_files(self._storage, self._reader.snapshot)
        return [path for path, error in self._checked(found, INDEX_SCHEMA) if error is None]

    def _checked(self, paths: Sequence[str], schema: pa.Schema) -> CheckedFiles:
        """Return each file with its error if it is missing, damaged, or lacks columns of `schema`.

        The footer is verified, a small file completely. An engine reads the rest through `VerifiedFiles`.
        """
        # The footers of new files are read next. From a remote file, they are fetched with this request.
        length = 8 if self._storage.is_local or all(map(self._files.is_described, paths)) else _TAIL_BYTES
        tails = self._storage.read_tails(paths, length)
        return [(path, self._error(path, tail, schema)) for path, tail in zip(paths, tails, strict=True)]

    def _checked_index(self, paths: Sequence[str]) -> CheckedFiles:
        """Return index files with their errors.

        Files that were readable before are not checked again. New files are verified as a whole, unless they are large
        and remote, because the next query reads all of them.
        """
        new = [path for path in paths if not self._files.is_described(path)]
        self._storage.prefetch(new)
        damage = {path: self._error(path, None, INDEX_SCHEMA, whole=True) for path in new}
        return [(path, damage.get(path)) for path in paths]

    def _error(self, path: str, tail: object, schema: pa.Schema, whole: bool = False) -> FileError | None:
        try:
            if isinstance(tail, Exception):
                raise tail
            if whole and (self._storage.is_local or self._storage.size(path) <= _WHOLE_BYTES):
                self._files.check(path)
            self._files.described(path, schema)
        except FileNotFoundError:
            return MissingIndexFile(path) if path.startswith(f"{INDEX}/") else MissingChunk(path, _MISSING)
        except FileError as exc:
            return exc
        except (OSError, ValueError) as exc:
            return CorruptFile(path, f"an engine cannot read this file: {exc}")
        return None

    def _check_pending(self, checked: CheckedFiles) -> None:
        """Raise the StorageError of an index file that could be read before, until it counts as lost."""
        self._reader.change(lambda now: now.with_readable(path for path, error in checked if error is None))
        for path, error in checked:
            if isinstance(error, StorageError):
                self._reader.change(partial(Snapshot.with_unread, path=path))  # the next query reads it again
                if is_index_path(path) and self._reader.snapshot.is_pending(path):
                    raise error

    def _readable(self, checked: CheckedFiles) -> list[str]:
        """Return the undamaged files, because one bad file would make a view useless."""
        for _, error in checked:
            if error is not None:
                self._reader.exclude(error)
        return [path for path, error in checked if error is None]


def parquet_files(storage: Storage, folder: str) -> list[str]:
    """Return the paths of the Parquet files directly in a folder of a run."""
    return [f"{folder}/{name}" for name in storage.list(folder) if name.endswith(".parquet")]


# The parts of each view: views over files, and small tables.
_SOURCES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("tensors", "reductions", "merged_reductions", "scalars", "run_summary"), ("tensors",)),
    **{view: (view,) for view in ("steps", "collections", "findings", "tensor_values")},
    "superseded": ("superseded", "tensors"),
    "runs": ("runs", "tensors"),
}
OF_MANY_RUNS = tuple(_SOURCES)
OF_ONE_RUN = OF_MANY_RUNS[:-1]

_Files = Callable[[QuerySources], list[str]]
_Rows = Callable[[QuerySources, str], pa.Table]
# The sources that are views over files, with their files and the rows that do not count.
_OVER_FILES: Mapping[str, tuple[FilesView, _Files, _Rows | None]] = {
    "tensors": (FilesView("tensors", INDEX_SCHEMA), QuerySources.index_files, QuerySources.superseded_rows),
    "tensor_values": (
        FilesView("tensor_values", TENSORS_SCHEMA),
        QuerySources.chunk_files,
        QuerySources.unsaved_values,
    ),
    "findings": (FilesView("findings", FINDINGS_SCHEMA, "step"), QuerySources.finding_files, None),
    "superseded": (FilesView("superseded", INDEX_SCHEMA), QuerySources.superseded_files, None),
}
# Listed for each query: rules of other processes may write findings at any time, and compaction supersedes files.
_LISTED = ("findings", "superseded")
_TABLES: Mapping[str, _Rows] = {
    "steps": lambda sources, run: sources.steps.table(run),
    "collections": QuerySources.collections,
}


class RunQueries:
    """The views over some runs, by the names of the runs.

    Safe to use from several threads. The first query starts the engine. A query makes a view again if the runs have
    changed.

    Args:
        readers: The gateways to the runs.
        engine: The SQL engine; None for the default one.
        range_steps: Leaves out every global step outside a <= step < b of (a, b).
        runs: Returns the rows of the view `runs`. With it, each view has the column `run`.
    """

    def __init__(
        self,
        readers: Mapping[str, SnapshotHolder],
        engine: Engine | None = None,
        range_steps: StepRange | None = None,
        runs: Callable[[], pa.Table] | None = None,
    ) -> None:
        self._readers, self._engine, self._runs = readers, engine, runs
        self._first, self._end = range_steps or (None, None)
        self.lock, self.of_files = threading.RLock(), threading.Lock()
        self._closed = False
        self._database: Database | None = None
        self._sources: dict[str, object] = {}
        """The versions that the sources were made from."""
        self._views: dict[str, list[object]] = {}
        """The versions of the sources that each view was made from."""

    @property
    def database(self) -> Database:
        """The database of the views. Raises RunClosed."""
        with self.lock:
            if self._closed:
                raise RunClosed
            if self._database is None:
                from ..engines.duckdb import DuckDBEngine  # only queries need it, and it takes 0.02 s

                storages = [reader.storage for reader in self._readers.values()]
                self._database = (self._engine or DuckDBEngine()).connect(storages)
            return self._database

    def sql(self, query: str, parameters: dict[str, Any] | None = None, timeout: float | None = None) -> Answer:
        """Return the rows of a query. The engine binds it when its columns or rows are first requested.

        Raise QueryRefused for anything but one SELECT, and QueryError if the engine cannot run it. If a file was
        damaged or deleted after its verification, the error names the file, and the next query leaves it out.
        """
        if not isinstance(query, str):
            raise ConfigurationError(f"a query must be text, got {query!r:.200}")
        if parameters is not None and not isinstance(parameters, dict):
            raise ConfigurationError("parameters must be a dictionary; write $name in the query")
        with self._unchanged():
            parsed = self.database.parse(query, OF_ONE_RUN if self._runs is None else OF_MANY_RUNS)
            self._make(parsed.views)
            made_of, snapshots = self._made_of(parsed.views), self._snapshots()

        def remade() -> bool:
            nonlocal made_of
            with self._unchanged():
                known = self._damaged()
                self._recover()
                self._make(parsed.views)
                before, made_of = made_of, self._made_of(parsed.views)
                snapshots.update(self._snapshots())
                lost = self._damaged() - known
                if corrupt := next((error for error in lost if isinstance(error, CorruptFile)), None):
                    raise corrupt
                return made_of != before and not lost

        answer = self.database.run(parsed, parameters and plain(parameters), timeout, remade)
        answer.snapshots = snapshots
        return answer

    def _snapshots(self) -> dict[str, str]:
        return {run: reader.snapshot.id for run, reader in self._readers.items()}

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Keep all snapshots unchanged inside the block."""
        with ExitStack() as locks:
            for lock in (self.lock, *(reader.lock for reader in self._readers.values())):
                locks.enter_context(lock)
            yield

    def _recover(self) -> None:
        """Find the files that replaced others, or let the files that a query reads be verified again."""
        for reader in self._readers.values():
            reader.sources.recover()
        self._sources.clear()

    def _damaged(self) -> set[FileError]:
        return {error for reader in self._readers.values() for error in reader.snapshot.damaged.values()}

    def _made_of(self, views: Iterable[str]) -> list[object]:
        """Return the versions that the views were made from."""
        return [self._views[view] for view in sorted(views)]

    def _make(self, views: Iterable[str]) -> None:
        """Make the views that a query reads, unless their sources are unchanged."""
        repeated(lambda: self._make_once(views), self._recover)

    def _make_once(self, views: Iterable[str]) -> None:
        for view in sorted(views):
            versions = [self._made(source) for source in _SOURCES[view]]
            if self._views.get(view) != versions:
                self.database.make_view(view, self._runs is not None)
                self._views[view] = versions

    def _made(self, source: str) -> object:
        """Make a source of views, unless the runs are unchanged, and return its version."""
        version: object = [reader.version for reader in self._readers.values()]
        if source in _LISTED or self._sources.get(source) != version:
            self._make_source(source)
            version = object() if source in _LISTED else version
            self._sources[source] = version
        return version

    def _make_source(self, source: str) -> None:
        if source in _OVER_FILES:
            view, paths, rows = _OVER_FILES[source]
            # The files come first, because files that were compacted since may hold tensors that were saved again.
            of_runs = [(run, each.storage, each.sources) for run, each in self._readers.items()]
            files = [
                RunFile(storage, path, run, sources.is_exact(path))
                for run, storage, sources in of_runs
                for path in paths(sources)
            ]
            left_out = self._table(rows) if rows else None
            view = replace(view, first=self._first, end=self._end, left_out=left_out or None)
            self.database.make_files_view(view, files)
        elif source in _TABLES:
            self.database.put(source, self._table(_TABLES[source]))
        elif self._runs is not None:
            self.database.put(source, self._runs())

    def _table(self, rows: _Rows) -> pa.Table:
        return pa.concat_tables([rows(reader.sources, run) for run, reader in self._readers.items()])

    def close(self) -> None:
        """Release the memory. No query can be run afterwards."""
        with self.lock:
            self._closed = True
            if self._database is not None:
                self._database.close()
