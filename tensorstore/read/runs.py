"""Many runs, opened together: their views have the run as a column, and a view lists the runs themselves."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from importlib import import_module
from typing import Any, Self

import pyarrow as pa

from .. import forking
from ..engines.base import Answer, Database, Engine, RunFile
from ..engines.default import default_engine
from ..errors import (
    ConfigurationError,
    CorruptFile,
    FileError,
    MissingChunk,
    MissingIndexFile,
    QueryError,
    RunNotFound,
    TensorTrialError,
)
from ..format import arrow_arrays
from ..format.documents import utc
from ..format.flush_range import current_files
from ..format.index_log import NewFile, list_index, read_summaries
from ..format.index_types import IndexSummary
from ..format.schema import END, FINDINGS, FINDINGS_SCHEMA, INDEX_SCHEMA, RUN_FILE, TENSORS_SCHEMA, EndInfo, RunInfo
from ..format.superseded import superseded_files
from ..html_table import html_table
from ..parallel import in_threads
from ..redaction import without_credentials
from ..snapshot.saved_steps import STEPS, SavedSteps
from ..storage.open import Storage
from .catalogue.catalogue import COLLECTIONS, collection_row, parquet_files
from .catalogue.readable_files import ReadableFiles
from .catalogue.views import Views
from .index_chain import find_missing
from .opening import create_trial
from .plots import RunsPlots
from .run_search import RunSearch, short_names
from .steps.workers import Workers
from .trial import Trial, run_reader_of

_PARALLEL = 16
# A table in a notebook is shown without being requested, so what takes longer is left out.
_SIZES_SECONDS = 0.1
_SIZES = "select run, count(distinct global_step), sum(nbytes) from tensors group by run"

RunLocation = str | os.PathLike[str] | Trial
RunLocations = RunLocation | Iterable[RunLocation]


@dataclass(frozen=True)
class OpenedRun:
    """A run as it was when it was opened."""

    name: str
    storage: Storage
    info: RunInfo
    workers: Workers
    ended: datetime | None
    index: dict[str, list[str]]
    """The readable index files of each worker."""


def open_runs(
    places: RunLocations,
    *,
    storage_options: Mapping[str, Any] | None = None,
    engine: Engine | None = None,
    verify: bool = True,
) -> Runs:
    """Open many runs. What cannot be opened is left out, and `Runs.damaged` says why.

    A run is named by the last part of its path, or by as many parts as distinguish it from the others.

    Args:
        places: A folder that has runs below it, a pattern such as `s3://bucket/project/lr=*`, a Trial, or a list of
            those and of paths of runs.
        storage_options: Options for fsspec.
        engine: The SQL engine: DuckDB if None, or for instance a SparkEngine.
        verify: Compare raw values with their digests when `Runs.trial` reads them; see `create_trial`.

    Returns:
        The open runs.

    Raises:
        RunNotFound: No run can be opened.
        ConfigurationError: The list is empty.
    """
    opened = [places] if isinstance(places, str | os.PathLike | Trial) else list(places)
    return Runs(opened, storage_options, engine, verify)


class Runs:
    """Runs as they were when they were opened or last refreshed. Made by `open_runs`."""

    def __init__(
        self,
        locations: Sequence[RunLocation | Storage],
        storage_options: Mapping[str, Any] | None = None,
        engine: Engine | None = None,
        verify: bool = True,
    ) -> None:
        if not locations:
            raise ConfigurationError("open_runs needs a folder, a pattern, or a list of runs; the list is empty")
        # A Trial brings its storage, and with it the options that opened it.
        self._locations = [_location(location) for location in locations]
        self._options = storage_options
        self._verify = verify
        self._engine = engine or default_engine()
        self._runs: dict[str, OpenedRun] = {}
        self._database: Database | None = None
        self._views: Views | None = None
        self._inherited = False
        forking.register(self)
        self.damaged: dict[str, TensorTrialError] = {}
        """What could not be opened or read, by its path, and why."""
        self.refresh()

    @property
    def names(self) -> list[str]:
        """The names of the runs, sorted."""
        return sorted(self._runs)

    @property
    def database(self) -> Database:
        """The database of the views."""
        assert self._database is not None
        return self._database

    @property
    def all(self) -> list[OpenedRun]:
        """The runs, by name. For exports: it changes without notice."""
        return [self._runs[name] for name in self.names]

    def trial(self, name: str) -> Trial:
        """Open one of the runs by itself.

        Args:
            name: One of `names`.

        Returns:
            The run, as `create_trial` opens it.

        Raises:
            ConfigurationError: No run has this name.
        """
        if name not in self._runs:
            near = difflib.get_close_matches(name, self.names, 3, 0.5) or self.names[:20]
            raise ConfigurationError(f"unknown run {name!r}; the nearest runs are: {', '.join(near)}")
        url = self._runs[name].storage.url
        return create_trial(url, name, storage_options=self._options, engine=self._engine, verify=self._verify)

    def sql(self, query: str, parameters: dict[str, Any] | None = None, timeout: float | None = None) -> Answer:
        """Run one SELECT on the views of all runs.

        The views are those of `Trial.sql`, each with the column `run`, and `runs`: run, path, started, ended (null
        while it is written), framework, versions, workers, steps, tensor_bytes (of all saved tensors, in memory),
        file_bytes (of all files), metadata (as passed to the hook, as JSON).

        Args:
            query: The SELECT, in DuckDB's SQL.
            parameters: The values of `$name` in the query.
            timeout: Seconds that the engine may run each time rows are fetched; None for no limit.

        Returns:
            The rows; see `Trial.sql`.

        Raises:
            QueryRefused: The query is not one SELECT on the views.
            QueryError: The engine cannot run the query.
            QueryTimeout: The query took longer than `timeout`.
        """
        if self._inherited:
            self._connect()
        assert self._views is not None
        return self._views.sql(query, parameters, timeout, self._refusing_compacted)

    @property
    def plot(self) -> RunsPlots:
        """Plots of the runs with matplotlib, which the extra `plot` installs: `runs.plot.scalars("loss")`.

        Raises:
            MissingExtra: matplotlib is not installed.
        """
        # By its name: a layer above this one, loaded on first use.
        plots: RunsPlots = import_module("tensortrial.plots").RunsPlots(self)
        return plots

    def refresh(self) -> None:
        """Find new runs, and new data in the runs that are open.

        Raises:
            RunNotFound: No run can be opened.
        """
        self.damaged = {}
        found = in_threads(self._find, self._locations, _PARALLEL)
        storages = {storage.url: storage for each in found for storage in each}
        names = short_names(list(storages))
        opened = in_threads(lambda url: self._open(storages[url], names[url]), storages, _PARALLEL)
        self._runs = {run.name: run for run in opened if run is not None}
        if not self._runs:
            raise _nothing_opened(", ".join(map(_spelled, self._locations)), list(self.damaged.values()))
        self._connect()

    def _connect(self) -> None:
        self.close()
        self._database = self._engine.connect([run.storage for run in self._runs.values()])
        self._views = self._make_views(self._database)
        self._inherited = False

    def after_fork(self) -> None:
        """Reset the connection of a forked child, whose threads are missing. The next query makes a new one."""
        self._inherited = True

    def close(self) -> None:
        """Release the memory. No query can be run afterwards, unless by a refresh."""
        if self._database is not None and not self._inherited:
            self._database.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy, here or in another process, opens the runs again.
        return Runs, (self._locations, self._options, self._engine, self._verify)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> Trial:
        return self.trial(name)

    def __contains__(self, name: object) -> bool:
        return name in self._runs

    def _ipython_key_completions_(self) -> list[str]:
        return self.names

    def _repr_html_(self) -> str:
        try:
            found = self.sql(_SIZES, timeout=_SIZES_SECONDS).fetchall()
        except TensorTrialError:
            found = []  # long, closed, or damaged: the rest is known
        sizes = {run: f", {steps:,} steps, {nbytes / 1e6:,.1f} MB of tensors" for run, steps, nbytes in found}
        states = {run.name: "ended" if run.workers.job_ended else "running" for run in self.all}
        return html_table(repr(self), ((name, state + sizes.get(name, "")) for name, state in states.items()))

    def __repr__(self) -> str:
        return f"Runs({len(self)} run{'' if len(self) == 1 else 's'} of {', '.join(map(_spelled, self._locations))})"

    # Finding and opening.

    def _find(self, location: str | Storage) -> list[Storage]:
        if isinstance(location, Storage):
            return [location]
        search, found = RunSearch(self._options), list[Storage]()
        try:
            found = list(search.at(location))
        except TensorTrialError as exc:
            search.damaged[_spelled(location)] = exc
        if not found and not search.damaged:
            search.damaged[_spelled(location)] = RunNotFound(location, "there is no run here, nor in the folders below")
        self.damaged.update(search.damaged)
        return found

    def _open(self, storage: Storage, name: str) -> OpenedRun | None:
        try:
            info = RunInfo.from_bytes(storage.read_document(RUN_FILE), storage.url)
            workers = Workers(storage)
            workers.refresh()
            ended = _ended_at(storage, workers, self.damaged)
            index = self._readable_index(storage, workers)
            return OpenedRun(name, storage, info, workers, ended, index)
        except (TensorTrialError, FileNotFoundError) as exc:
            error = exc if isinstance(exc, TensorTrialError) else RunNotFound(storage.url, f"it is incomplete: {exc}")
            self.damaged[storage.url] = error
            return None

    def _readable_index(self, storage: Storage, workers: Workers) -> dict[str, list[str]]:
        """Return the index files of each worker that can be read, and that no other such file supersedes."""
        files = ReadableFiles(storage)
        damaged: dict[str, FileError] = {}
        missing: dict[str, FileError] = {}
        unlisted: dict[str, MissingIndexFile] = {}
        while True:
            listed = {info.worker: list_index(storage, info.worker) for info in workers.infos}
            usable = {worker: [path for path in paths if path not in damaged] for worker, paths in listed.items()}
            index = {worker: current_files(paths) for worker, paths in usable.items()}
            checked = files.check([path for paths in index.values() for path in paths], INDEX_SCHEMA)
            errors = {path: error for path, error in checked if error is not None}
            # In two listings: it is not being compacted.
            before, unlisted = unlisted, {} if errors else find_missing(storage, listed, workers.last_index_files)
            if not errors and unlisted.keys() == before.keys():
                found = {**damaged, **unlisted}
                self.damaged.update({f"{storage.url}/{path}": error for path, error in found.items()})
                return index
            # One that is missing was compacted since it was listed, unless it is listed again.
            damaged |= {path: error for path, error in errors.items() if not _is_missing(error) or path in missing}
            missing |= {path: error for path, error in errors.items() if _is_missing(error)}

    def _readable(self, storage: Storage, paths: list[str], schema: pa.Schema) -> list[str]:
        """Return the files that exist and are whole: one bad file would make the views useless."""
        kept = []
        for path, error in ReadableFiles(storage).check(paths, schema):
            if error is None:
                kept.append(path)
            else:
                self.damaged[f"{storage.url}/{path}"] = error
        return kept

    # Views.

    def _make_views(self, database: Database) -> Views:
        steps = _Steps(list(self._runs.values()), self.damaged)
        views = Views(database, many=True)
        views.add_files("tensors", lambda: 0, self._index_files)
        views.add_table("steps", lambda: 0, steps.table)
        views.add_table("collections", lambda: 0, self._table_of_collections)
        views.add_table("runs", lambda: 0, self._table_of_runs)
        # Their files are checked for each query: rules write findings at any time, and chunks may be compacted.
        views.add_files("findings", object, self._finding_files)
        views.add_files("tensor_values", object, lambda: self._chunk_files(steps))
        views.add_files("superseded", object, self._superseded_files)
        return views

    def _table_of_collections(self) -> pa.Table:
        rows = [
            collection_row(info.worker, info.include_collections, dict(document), run.name)
            for run in self._runs.values()
            for info in run.workers.infos
            for document in info.collections
        ]
        return arrow_arrays.table(COLLECTIONS, rows)

    def _table_of_runs(self) -> pa.Table:
        return arrow_arrays.table(_RUNS, in_threads(_row, self._runs.values(), _PARALLEL))

    def _index_files(self) -> list[RunFile]:
        return [
            RunFile(run.storage, path, run.name)
            for run in self._runs.values()
            for paths in run.index.values()
            for path in paths
        ]

    @contextmanager
    def _refusing_compacted(self) -> Iterator[None]:
        """Raise QueryError if files of the runs were compacted since they were opened."""
        for run in self._runs.values():
            self._check_compacted(run)
        yield

    def _check_compacted(self, run: OpenedRun) -> None:
        for worker, paths in run.index.items():
            now = set(current_files(list_index(run.storage, worker)))
            if gone := [path for path in paths if path not in now]:
                raise _compacted(run, gone[0])

    def _finding_files(self) -> list[RunFile]:
        return [
            RunFile(run.storage, path, run.name)
            for run in self._runs.values()
            for path in self._readable(run.storage, parquet_files(run.storage, FINDINGS), FINDINGS_SCHEMA)
        ]

    def _superseded_files(self) -> list[RunFile]:
        return [
            RunFile(run.storage, path, run.name)
            for run in self._runs.values()
            for path in self._readable(run.storage, superseded_files(run.storage), INDEX_SCHEMA)
        ]

    def _chunk_files(self, steps: _Steps) -> list[RunFile]:
        return [
            RunFile(self._runs[name].storage, path, name)
            for name, saved in steps.of_runs.items()
            for path in self._readable_chunks(self._runs[name], saved.chunk_paths())
        ]

    def _readable_chunks(self, run: OpenedRun, paths: list[str]) -> list[str]:
        readable = self._readable(run.storage, paths, TENSORS_SCHEMA)
        missing = (path for path in paths if _is_missing(self.damaged.get(f"{run.storage.url}/{path}")))
        if any(missing):
            self._check_compacted(run)
        return readable


class _Steps:
    """The saved steps of many runs, read when a query first needs them."""

    def __init__(self, runs: Sequence[OpenedRun], damaged: dict[str, TensorTrialError]) -> None:
        self._runs, self._damaged = runs, damaged

    @cached_property
    def of_runs(self) -> dict[str, SavedSteps]:
        """The saved steps by run."""
        return {run.name: SavedSteps().added(list(self._summaries(run))) for run in self._runs}

    def table(self) -> pa.Table:
        """Return the rows of the view `steps`."""
        return pa.concat_tables([STEPS.empty_table(), *(saved.table(run) for run, saved in self.of_runs.items())])

    def _summaries(self, run: OpenedRun) -> Iterator[NewFile]:
        workers = {path: worker for worker, paths in run.index.items() for path in paths}
        for path, _, summary in read_summaries(run.storage, list(workers)):
            if isinstance(summary, IndexSummary):
                yield NewFile(workers[path], path, summary, [])
            elif isinstance(summary, FileNotFoundError):
                raise _compacted(run, path)
            elif isinstance(summary, TensorTrialError):
                self._damaged[f"{run.storage.url}/{path}"] = summary


def _is_missing(error: TensorTrialError | None) -> bool:
    return isinstance(error, MissingChunk)


def _compacted(run: OpenedRun, path: str) -> QueryError:
    return QueryError(
        f"{run.storage.url}/{path} is missing: it was compacted since the runs were opened; call refresh()"
    )


_RUNS = pa.schema(
    [
        ("run", pa.string()),
        ("path", pa.string()),
        ("started", pa.timestamp("us")),
        ("ended", pa.timestamp("us")),
        ("framework", pa.string()),
        ("versions", pa.string()),
        ("workers", pa.int32()),
        ("file_bytes", pa.int64()),
        ("metadata", pa.string()),
    ]
)


def _location(location: RunLocation | Storage) -> str | Storage:
    if isinstance(location, Storage):
        return location
    return run_reader_of(location).storage if isinstance(location, Trial) else os.fspath(location)


def _nothing_opened(locations: str, errors: list[TensorTrialError]) -> RunNotFound:
    if len(errors) == 1 and isinstance(errors[0], RunNotFound):
        return errors[0]
    reasons = "; ".join(map(str, errors[:3])) + (f"; and {len(errors) - 3} more" if len(errors) > 3 else "")
    return RunNotFound(locations, f"no run can be opened: {reasons}")


def _row(run: OpenedRun) -> tuple[Any, ...]:
    return (
        run.name,
        run.storage.url,
        utc(run.info.created_at),
        run.ended,
        run.info.framework,
        json.dumps(dict(run.info.versions)),
        run.workers.num_workers,
        sum(file.nbytes for file in run.storage.walk()),
        json.dumps(dict(run.info.metadata)),
    )


def _ended_at(storage: Storage, workers: Workers, damaged: dict[str, TensorTrialError]) -> datetime | None:
    """Return when the last worker ended; None while one is writing, and where no mark says when."""
    if not workers.job_ended:
        return None
    times = []
    for path in (f"{END}/{name}" for name in storage.list(END) if name.endswith(".json")):
        try:
            mark = EndInfo.from_bytes(storage.read_document(path), path)
            times += [utc(mark.ended_at)] if mark.ended_at else []
        except (ValueError, FileNotFoundError) as exc:
            damaged[f"{storage.url}/{path}"] = CorruptFile(path, f"it does not say when a worker ended: {exc}")
    return max(times, default=None)


def _spelled(location: str | Storage) -> str:
    return without_credentials(location) if isinstance(location, str) else location.url
