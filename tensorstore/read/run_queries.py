"""SQL over the views of one run, or of many that were opened together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..engines.base import Answer, Database, Engine, FilesView, RunFile
from ..errors import CorruptFile, FileError, RunClosed
from ..format.schema import FINDINGS_SCHEMA, INDEX_SCHEMA, TENSORS_SCHEMA
from ..snapshot.saved_steps import StepRange
from ..snapshot.snapshot import repeated
from .query_sources import QuerySources

if TYPE_CHECKING:
    from .run_reader import RunReader

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
# Sources that are views over files, with their files and the rows in these that do not count.
_OVER_FILES: Mapping[str, tuple[FilesView, _Files, _Rows | None]] = {
    "tensors": (
        FilesView("tensors", INDEX_SCHEMA, "saved_at"),
        QuerySources.index_files,
        QuerySources.superseded_rows,
    ),
    "tensor_values": (
        FilesView("tensor_values", TENSORS_SCHEMA),
        QuerySources.chunk_files,
        QuerySources.unsaved_values,
    ),
    "findings": (FilesView("findings", FINDINGS_SCHEMA, "found_at", "step"), QuerySources.finding_files, None),
    "superseded": (FilesView("superseded", INDEX_SCHEMA, "saved_at"), QuerySources.superseded_files, None),
}
# Listed for each query: rules of other processes write findings at any time, and compaction supersedes files.
_LISTED = ("findings", "superseded")
_TABLES: Mapping[str, _Rows] = {
    "steps": lambda sources, run: sources.steps.table(run),
    "collections": QuerySources.collections,
}


class RunQueries:
    """The views over some runs, by the names of the runs. Safe to use from several threads.

    The engine starts with the first query. A view is made again when a query reads it and the runs have changed.

    Args:
        readers: The gateways to the runs.
        engine: The SQL engine; None for the default one.
        range_steps: Leaves out every global step outside a <= step < b of (a, b).
        runs: Returns the rows of the view `runs`. With it, each view has the column `run`.
    """

    def __init__(
        self,
        readers: Mapping[str, RunReader],
        engine: Engine | None = None,
        range_steps: StepRange | None = None,
        runs: Callable[[], pa.Table] | None = None,
    ) -> None:
        self._readers, self._engine, self._runs = readers, engine, runs
        self._first, self._end = range_steps or (None, None)
        self._lock = threading.RLock()
        self._closed = False
        self._database: Database | None = None
        self._sources: dict[str, object] = {}
        """The versions that the sources are made of."""
        self._views: dict[str, list[object]] = {}
        """The versions of their sources that the views are made of."""

    @property
    def database(self) -> Database:
        """The database of the views. Raises RunClosed."""
        with self._lock:
            if self._closed:
                raise RunClosed
            if self._database is None:
                from ..engines.duckdb import DuckDBEngine  # only queries need it, and it takes 0.02 s

                storages = [reader.storage for reader in self._readers.values()]
                self._database = (self._engine or DuckDBEngine()).connect(storages)
            return self._database

    def sql(self, query: str, parameters: dict[str, Any] | None = None, timeout: float | None = None) -> Answer:
        """Return the rows of a user's query.

        Raises QueryRefused for anything but one SELECT, and QueryError for one that the engine cannot run. Where a file
        was damaged or deleted since it was verified, the error names the file, which the next query leaves out.
        """
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

        answer = self.database.run(parsed, parameters, timeout, remade)
        answer.snapshots = snapshots
        return answer

    def _snapshots(self) -> dict[str, str]:
        return {run: reader.snapshot.id for run, reader in self._readers.items()}

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Let nobody change the snapshots inside the block."""
        with ExitStack() as locks:
            for lock in (self._lock, *(reader.lock for reader in self._readers.values())):
                locks.enter_context(lock)
            yield

    def _recover(self) -> None:
        """Find the files that replaced others, or let those that a query reads be verified again."""
        for reader in self._readers.values():
            reader.sources.recover()
        self._sources.clear()

    def _damaged(self) -> set[FileError]:
        return {error for reader in self._readers.values() for error in reader.snapshot.damaged.values()}

    def _made_of(self, views: Iterable[str]) -> list[object]:
        """Return the versions that views were made of."""
        return [self._views[view] for view in sorted(views)]

    def _make(self, views: Iterable[str]) -> None:
        """Make the views that a query reads, unless what they are made of is as it was."""
        repeated(lambda: self._make_once(views), self._recover)

    def _make_once(self, views: Iterable[str]) -> None:
        for view in sorted(views):
            versions = [self._made(source) for source in _SOURCES[view]]
            if self._views.get(view) != versions:
                self.database.make_view(view, self._runs is not None)
                self._views[view] = versions

    def _made(self, source: str) -> object:
        """Make a source of views, unless the runs are as they were, and return its version."""
        version: object = [reader.version for reader in self._readers.values()]
        if source in _LISTED or self._sources.get(source) != version:
            self._make_source(source)
            version = object() if source in _LISTED else version
            self._sources[source] = version
        return version

    def _make_source(self, source: str) -> None:
        if source in _OVER_FILES:
            view, paths, rows = _OVER_FILES[source]
            # The files first: those that were compacted since may hold what was saved again.
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
        with self._lock:
            self._closed = True
            if self._database is not None:
                self._database.close()
