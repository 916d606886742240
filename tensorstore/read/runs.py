"""Many runs, opened together. Their views have a column `run`, and the view `runs` lists the runs."""

from __future__ import annotations

import fnmatch
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import numpy as np
import pyarrow as pa

from .. import forking
from ..config.reduction_config import boolean
from ..engines.base import Answer, Engine
from ..errors import ConfigurationError, RunClosed, RunNotFound, StorageError, TensorTrialError
from ..format import arrow_arrays
from ..format.documents import utc
from ..format.schema import RUN_FILE, RunInfo
from ..html_table import html_table
from ..parallel import in_threads
from ..redaction import without_credentials
from ..storage.open import Storage, as_location, open_storage
from ..suggestions import near_names
from ..visible import sized
from .opening import create_trial
from .plots import RunsPlots
from .run_queries import RunQueries
from .run_reader import RunReader
from .trial import SIZE_SECONDS, Trial, run_reader_of

_PARALLEL = 16
_SIZES = "select run, count(distinct global_step), sum(nbytes) from tensors group by run"

RunLocation = str | os.PathLike[str] | Trial
RunLocations = RunLocation | Iterable[RunLocation]


def open_runs(
    places: RunLocations,
    *,
    storage_options: Mapping[str, Any] | None = None,
    engine: Engine | None = None,
    verify: bool = True,
) -> Runs:
    """Open many runs.

    Runs that cannot be opened are left out, with their errors in `Runs.damaged`. A run is named by the last part of its
    path, or by more parts if the names would be equal.

    Args:
        places: A folder with runs below it, a pattern such as `s3://bucket/project/lr=*`, a Trial, or a list of these
            or of paths of runs.
        storage_options: Options for fsspec.
        engine: The SQL engine: DuckDB if None, or for instance a SparkEngine.
        verify: Compare raw values with their digests when `Runs.trial` reads them; see `create_trial`.

    Returns:
        The open runs.

    Raises:
        RunNotFound: No run can be opened.
        StorageError: No run can be opened, and a storage refused to list a place or to read a run.
        ConfigurationError: The list is empty, or a place is neither a path nor a URL.
    """
    if isinstance(places, str | os.PathLike | Trial) or not np.iterable(places):
        places = [places]
    return Runs(list(places), storage_options, engine, verify)


class Runs:
    """Several open runs, as of their opening or last refresh. Made by `open_runs`."""

    def __init__(
        self,
        locations: Sequence[RunLocation | Storage],
        storage_options: Mapping[str, Any] | None = None,
        engine: Engine | None = None,
        verify: bool = True,
        opened: Iterable[RunReader] = (),
    ) -> None:
        if not locations:
            raise ConfigurationError("open_runs needs a folder, a pattern, or a list of runs; the list is empty")
        # A Trial already has a storage, with the options that opened it.
        self._locations = [_location(location) for location in locations]
        self._options = storage_options
        self._verify = boolean("verify", verify)
        self._engine = engine
        self._runs = {run.storage.url: run for run in opened}  # by name, once these are refreshed
        self._queries: RunQueries | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._not_opened: dict[str, TensorTrialError] = {}
        forking.register(self)
        self.refresh()

    @property
    def names(self) -> list[str]:
        """The names of the runs, sorted."""
        return sorted(self._runs)

    @property
    def queries(self) -> RunQueries:
        """The views of the runs, in a database of this process. Raises RunClosed."""
        with self._lock:
            if self._closed:
                raise RunClosed
            if self._queries is None:
                readers = {name: self._runs[name] for name in self.names}
                self._queries = RunQueries(readers, self._engine, runs=self._table_of_runs)
            return self._queries

    @property
    def all(self) -> list[RunReader]:
        """The runs, by name. This is for exports, and may change without notice."""
        return [self._runs[name] for name in self.names]

    @property
    def damaged(self) -> dict[str, TensorTrialError]:
        """The errors of runs and files that could not be opened or read, by their paths."""
        of_runs = {
            f"{run.storage.url}/{path}": error for run in self.all for path, error in run.snapshot.damaged.items()
        }
        return {**self._not_opened, **of_runs}

    def trial(self, name: str) -> Trial:
        """Open one of the runs by itself.

        Args:
            name: One of `names`.

        Returns:
            The run, as `create_trial` opens it.

        Raises:
            ConfigurationError: No run has this name.
        """
        if not isinstance(name, str) or name not in self._runs:
            near = near_names(str(name), self.names) or self.names[:20]
            raise ConfigurationError(f"unknown run {name!r}; the nearest runs are: {', '.join(near)}")
        url = self._runs[name].storage.url
        return create_trial(url, name, storage_options=self._options, engine=self._engine, verify=self._verify)

    def sql(self, query: str, parameters: dict[str, Any] | None = None, timeout: float | None = None) -> Answer:
        """Run one SELECT on the views of all runs.

        The views are those of `Trial.sql`, each with the column `run`, and the view `runs`, which has a row for each
        run. `DESCRIBE runs` lists its columns.

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
        answer = self.queries.sql(query, parameters, timeout)
        _ = answer.columns  # raises the error of a query that the engine cannot run
        return answer

    @property
    def plot(self) -> RunsPlots:
        """Plots of the runs with matplotlib, which the extra `plot` installs: `runs.plot.scalars("loss")`.

        Raises:
            MissingExtra: matplotlib is not installed.
        """
        return RunsPlots(self)

    def refresh(self) -> None:
        """Find new runs, and new data in the open runs.

        Raises:
            RunNotFound, StorageError: No run can be opened, as for `open_runs`. Open runs stay open.
        """
        self._not_opened = {}
        found = in_threads(self._find, self._locations, _PARALLEL)
        storages = {storage.url: storage for each in found for storage in each}
        names = short_names(list(storages))
        known = {run.storage.url: run for run in self._runs.values()}
        opened = in_threads(lambda url: self._open(storages[url], names[url], known.get(url)), storages, _PARALLEL)
        runs = {run.name: run for run in opened if run is not None}
        if not runs:
            raise nothing_opened(self._locations, list(self._not_opened.values()))
        self.close()
        with self._lock:
            self._runs, self._queries, self._closed = runs, None, False

    def after_fork(self) -> None:
        """Forget the connection in a forked child, which lacks the engine's threads. The next query makes a new one."""
        self._lock, self._queries = threading.Lock(), None

    def close(self) -> None:
        """Release the memory. No query can be run afterwards, except after a refresh."""
        with self._lock:
            self._closed = True
            if self._queries is not None:
                self._queries.close()

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
            found = self.sql(_SIZES, timeout=SIZE_SECONDS).fetchall()
        except TensorTrialError:
            found = []  # it takes long, is closed, or damaged; the rest is known
        sizes = {run: f", {steps:,} steps, {sized(nbytes)} of tensors" for run, steps, nbytes in found}
        states = {run.name: "ended" if run.snapshot.workers.job_ended else "running" for run in self.all}
        return html_table(repr(self), ((name, state + sizes.get(name, "")) for name, state in states.items()))

    def __repr__(self) -> str:
        where = ", ".join(map(_spelled, self._locations)) + (", some `damaged`" if self._not_opened else "")
        return f"Runs({len(self)} run{'' if len(self) == 1 else 's'} of {where})"

    # Finding and opening.

    def _find(self, location: str | Storage) -> list[Storage]:
        if isinstance(location, Storage):
            return [location]
        search = RunSearch(self._options)
        found = search.find(location)
        self._not_opened.update(search.damaged)
        return found

    def _open(self, storage: Storage, name: str, known: RunReader | None) -> RunReader | None:
        try:
            if known is None:
                info = RunInfo.from_bytes(storage.read_document(RUN_FILE), storage.url)
                return RunReader(storage, info, name, is_refreshing=False)
            known.name = name
            known.refresh(claims=True)
            return known
        except (TensorTrialError, FileNotFoundError) as exc:
            error = exc if isinstance(exc, TensorTrialError) else RunNotFound(storage.url, f"it is incomplete: {exc}")
            self._not_opened[storage.url] = error
            return None

    def _table_of_runs(self) -> pa.Table:
        return arrow_arrays.table(_RUNS, in_threads(_row, self.all, _PARALLEL))


_RUNS = pa.schema(
    [
        ("run", pa.string()),
        ("path", pa.string()),
        ("started_at", pa.timestamp("us", tz="UTC")),
        ("ended_at", pa.timestamp("us", tz="UTC")),
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
    return run_reader_of(location).storage if isinstance(location, Trial) else as_location(location)


def nothing_opened(locations: Iterable[str | Storage], errors: Sequence[TensorTrialError]) -> TensorTrialError:
    """Return the error for locations at which no run can be opened, although a storage that refuses may hold runs."""
    if len(errors) == 1 and isinstance(errors[0], RunNotFound):
        return errors[0]
    texts = sorted(map(str, errors))  # several threads found them
    reasons = "; ".join(texts[:3]) + (f"; and {len(texts) - 3} more" if len(texts) > 3 else "")
    kind = StorageError if any(isinstance(error, StorageError) for error in errors) else RunNotFound
    return kind(", ".join(map(_spelled, locations)), f"no run can be opened: {reasons}")


def _row(run: RunReader) -> tuple[Any, ...]:
    return (
        run.name,
        run.storage.url,
        utc(run.info.started_at),
        _ended_at(run),
        run.info.framework,
        json.dumps(dict(run.info.versions)),
        run.snapshot.workers.num_workers,
        sum(file.nbytes for file in run.storage.walk()),
        json.dumps(dict(run.info.metadata)),
    )


def _ended_at(run: RunReader) -> datetime | None:
    """Return the time at which the last worker ended; None while a worker writes, or if no end mark has a time."""
    if not run.snapshot.workers.job_ended:
        return None
    return max((utc(mark.ended_at) for mark in run.snapshot.workers.ends.values() if mark.ended_at), default=None)


def _spelled(location: str | Storage) -> str:
    return without_credentials(location) if isinstance(location, str) else location.url


# The number of levels below a folder that are searched for runs.
_DEPTH = 4


class RunSearch:
    """A search for the runs of a path: the run itself, runs below it, or runs that match a pattern."""

    def __init__(self, options: Mapping[str, Any] | None) -> None:
        self._options = options
        self.damaged: dict[str, TensorTrialError] = {}
        """The errors of folders that could not be listed, and of a location without runs."""

    def find(self, location: str) -> list[Storage]:
        """Return the runs of a location."""
        found = list[Storage]()
        try:
            head, *pattern = self._split(location)
            for folder in self._matching(head, pattern) if pattern else [location]:
                found += self._below(folder, _DEPTH)
        except TensorTrialError as exc:
            self.damaged[_spelled(location)] = exc
            return []
        if not found and not self.damaged:
            self.damaged[_spelled(location)] = RunNotFound(location, "there is no run here, nor in the folders below")
        return found

    def _split(self, location: str) -> list[str]:
        """Return the folder at the beginning of a pattern, and the parts from the first one with a wildcard on."""
        parts = location.rstrip("/").split("/")
        first = next((i for i, part in enumerate(parts) if any(sign in part for sign in "*?[")), len(parts))
        # The name of an existing folder may contain a wildcard.
        if first < len(parts) and self._entries(open_storage(location, self._options)):
            first = len(parts)
        return ["/".join(parts[:first]) or ("/" if location.startswith("/") else "."), *parts[first:]]

    def _matching(self, folder: str, pattern: Sequence[str]) -> Iterator[str]:
        if not pattern:
            yield folder
            return
        for name in self._entries(open_storage(folder, self._options)):
            if name == pattern[0] or fnmatch.fnmatchcase(name, pattern[0]):
                yield from self._matching(f"{folder.rstrip('/')}/{name}", pattern[1:])

    def _below(self, location: str, depth: int) -> Iterator[Storage]:
        storage = open_storage(location, self._options)
        names = self._entries(storage)
        if RUN_FILE in names:
            yield storage
        elif depth:
            for name in names:
                yield from self._below(f"{location.rstrip('/')}/{name}", depth - 1)

    def _entries(self, storage: Storage) -> list[str]:
        try:
            return [name for name in storage.list("") if not name.startswith(".")]
        except StorageError as exc:
            self.damaged[storage.url] = exc
            return []


def short_names(urls: Sequence[str]) -> dict[str, str]:
    """Return the shortest ends of the paths that distinguish them, as valid UTF-8."""
    names = {url: url.rpartition("/")[2] for url in urls}
    parts = 1
    while len(set(names.values())) < len(urls):
        parts += 1
        taken = list(names.values())
        names = {
            url: "/".join(url.split("/")[-parts:]) if taken.count(name) > 1 else name for url, name in names.items()
        }
    return {url: name.encode(errors="backslashreplace").decode() for url, name in names.items()}
