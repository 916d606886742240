"""SQL over the views of one run, or of many that were opened together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from ...engines.base import Answer, Database, Engine, RunFile
from ...engines.default import default_engine
from ...errors import RunClosed
from ...format.lazy import lazy
from ...snapshot.step_range import StepRange
from .catalogue import Catalogue
from .views import Views


class RunQueries:
    """The views over the catalogues of some runs, by the names of the runs. Safe to use from several threads.

    The engine starts with the first query.

    Args:
        catalogues: The contents of the runs.
        engine: The SQL engine; None for the default one.
        range_steps: Leaves out every global step outside a <= step < b of (a, b).
        runs: Returns the rows of the view `runs`. With it, each view has the column `run`.
    """

    def __init__(
        self,
        catalogues: Mapping[str, Catalogue],
        engine: Engine | None = None,
        range_steps: StepRange | None = None,
        runs: Callable[[], pa.Table] | None = None,
    ) -> None:
        self._catalogues, self._engine, self._range, self._runs = catalogues, engine, range_steps, runs
        self._lock = threading.RLock()
        self._closed = False
        self._database: Database | None = None

    @property
    def database(self) -> Database:
        """The database of the views. Raises RunClosed."""
        with self._lock:
            if self._closed:
                raise RunClosed
            if self._database is None:
                storages = [catalogue.storage for catalogue in self._catalogues.values()]
                self._database = (self._engine or default_engine()).connect(storages)
            return self._database

    @lazy
    def _views(self) -> Views:
        views = Views(self.database, self._runs is not None, self._range)
        index, chunks = (partial(self._files, files) for files in (Catalogue.index_files, Catalogue.chunk_files))
        views.add_files("tensors", self._versions, index, partial(self._rows, Catalogue.superseded_rows))
        views.add_files("tensor_values", self._versions, chunks, partial(self._rows, Catalogue.unsaved_values))
        # Listed for each query: rules of other processes write findings at any time, and compaction supersedes files.
        views.add_files("findings", object, lambda: self._files(Catalogue.finding_files))
        views.add_files("superseded", object, lambda: self._files(Catalogue.superseded_files))
        views.add_table("steps", self._versions, lambda: self._table(lambda each, run: each.steps.table(run)))
        views.add_table("collections", self._versions, lambda: self._table(Catalogue.collections))
        if self._runs is not None:
            views.add_table("runs", self._versions, self._runs)
        return views

    def _versions(self) -> object:
        return [catalogue.version for catalogue in self._catalogues.values()]

    def _files(self, files: Callable[[Catalogue], Iterable[str]]) -> list[RunFile]:
        return [RunFile(each.storage, path, run) for run, each in self._catalogues.items() for path in files(each)]

    def _rows(self, rows: Callable[[Catalogue, str], pa.Table]) -> pa.Table | None:
        table = self._table(rows)
        return table if len(table) else None

    def _table(self, rows: Callable[[Catalogue, str], pa.Table]) -> pa.Table:
        return pa.concat_tables([rows(catalogue, run) for run, catalogue in self._catalogues.items()])

    def sql(self, query: str, parameters: dict[str, Any] | None = None, timeout: float | None = None) -> Answer:
        """Return the rows of a user's query.

        Raises QueryRefused for anything but one SELECT, and QueryError for one that the engine cannot run.
        """
        with self._unchanged():
            return self._views.sql(query, parameters, timeout, self._after_recovery)

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Let nobody change the catalogues inside the block."""
        with ExitStack() as locks:
            for lock in (self._lock, *(catalogue.lock for catalogue in self._catalogues.values())):
                locks.enter_context(lock)
            yield

    @contextmanager
    def _after_recovery(self) -> Iterator[None]:
        """Find the files that replaced others, and let nobody change the catalogues inside the block."""
        with self._unchanged():
            for catalogue in self._catalogues.values():
                catalogue.recover()
            yield

    def close(self) -> None:
        """Release the memory. No query can be run afterwards."""
        with self._lock:
            self._closed = True
            if self._database is not None:
                self._database.close()
