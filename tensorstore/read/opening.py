"""Opening a run, and context managers that switch its automatic refresh on and off."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, overload

from ..engines.base import Engine
from ..engines.interrupting import deadline_of
from ..errors import ConfigurationError, MissingCollectionFiles, RunNotFound, SnapshotNotFound
from ..format.schema import RunInfo
from ..mode import checked_range
from ..snapshot.saved_steps import StepRange
from ..snapshot.snapshot import Snapshot, run_info
from ..storage.open import Storage, open_storage
from .run_reader import refreshing
from .trial import Trial, run_reader_of
from .waiting import POLL_SECONDS


def create_trial(  # noqa: PLR0913 - all options of a trial
    path: str | os.PathLike[str],
    name: str | None = None,
    range_steps: StepRange | None = None,
    *,
    timeout: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
    engine: Engine | None = None,
    verify: bool = True,
    snapshot: Snapshot | str | None = None,
    **ignored: Any,
) -> Trial:
    """Open a run for reading, also while it is being written.

    Args:
        path: The run's folder, or an fsspec URL such as `s3://bucket/run`.
        name: The name of the trial; the last part of the path if None.
        range_steps: Restricts the trial to global steps a <= s < b, given as (a, b). None leaves that side open.
        timeout: Seconds to wait for a run to appear; None raises at once if there is none.
        storage_options: Options for fsspec.
        engine: The SQL engine: DuckDB if None, or for instance a SparkEngine.
        verify: Compare raw values with their digests when they are read.
        snapshot: Opens the run as it was: a `trial.snapshot`, which can be pickled, or its id, `str(snapshot)`. Such a
            trial finds no new data. Values may be missing once `compact` has replaced files of that time. The search
            for an id may fail if many workers publish at different times.
        **ignored: `parallel`, `check`, `index_mode`, `cache`, `profiler` and `output_dir`, which smdebug had. They have
            no effect.

    Returns:
        The open run.

    Raises:
        RunNotFound: There is nothing at the path.
        NotARun: There are files at the path, but no run of this project.
        MissingCollectionFiles: No worker of the run has begun to save.
        UnknownFormat: A later release wrote the run.
        SnapshotNotFound: No set of the run's files has the id `snapshot`, or the snapshot is of another run.
        ConfigurationError: `range_steps` is empty, or differs from the snapshot's.
        TypeError: An unexpected keyword argument was passed.
    """
    unknown = set(ignored) - {"parallel", "check", "index_mode", "cache", "profiler", "output_dir"}
    if unknown:
        raise TypeError(f"create_trial() got an unexpected argument {sorted(unknown)[0]!r}")
    storage = open_storage(path, storage_options)
    run = wait_for_run(storage, timeout)
    if snapshot is not None:
        wanted = None if range_steps is None else checked_range(range_steps)
        snapshot = _checked(storage, run, snapshot, wanted)
        range_steps = snapshot.range_steps
    return Trial(storage, run, name, range_steps, engine, verify, snapshot)


def _checked(storage: Storage, run: RunInfo, snapshot: Snapshot | str, range_steps: StepRange | None) -> Snapshot:
    if not isinstance(snapshot, Snapshot):
        from ..snapshot.named import snapshot_named

        return snapshot_named(storage, run, snapshot, range_steps)
    if snapshot.run is None or snapshot.run.id != run.id:
        raise SnapshotNotFound(storage.url, f"the snapshot {snapshot} is of another run")
    if range_steps not in (None, snapshot.range_steps):
        raise ConfigurationError(f"range_steps={range_steps} is not that of the snapshot, {snapshot.range_steps}")
    return snapshot


@overload
def no_refresh(trials: Trial) -> AbstractContextManager[Trial]: ...
@overload
def no_refresh(trials: Iterable[Trial]) -> AbstractContextManager[list[Trial]]: ...
def no_refresh(trials: Trial | Iterable[Trial]) -> AbstractContextManager[Any]:
    """Stop trials from finding new data inside a `with` block.

    Args:
        trials: One trial, or several.

    Returns:
        The context manager. It yields the trial, or the list of trials, and restores the previous state.
    """
    return _refreshing(trials, False)


@overload
def refresh(trials: Trial) -> AbstractContextManager[Trial]: ...
@overload
def refresh(trials: Iterable[Trial]) -> AbstractContextManager[list[Trial]]: ...
def refresh(trials: Trial | Iterable[Trial]) -> AbstractContextManager[Any]:
    """Allow trials to find new data by themselves inside a `with` block.

    Args:
        trials: One trial, or several.

    Returns:
        The context manager. It yields the trial, or the list of trials, and restores the previous state.
    """
    return _refreshing(trials, True)


@contextmanager
def _refreshing(trials: Trial | Iterable[Trial], wanted: bool) -> Iterator[Trial | list[Trial]]:
    several = [trials] if isinstance(trials, Trial) or not isinstance(trials, Iterable) else list(trials)
    if not all(isinstance(trial, Trial) for trial in several):
        raise ConfigurationError(f"no_refresh and refresh take a trial or several, got {trials!r:.200}")
    with refreshing(list(map(run_reader_of, several)), wanted):
        yield trials if isinstance(trials, Trial) else several


def wait_for_run(storage: Storage, timeout: float | None) -> RunInfo:
    """Return the `run.json` of a run. With a `timeout` in seconds, wait until a worker has begun to save."""
    deadline = None if timeout is None else deadline_of(timeout)
    while True:
        try:
            return run_info(storage, has_begun=timeout is not None)
        except (RunNotFound, MissingCollectionFiles):
            if deadline is None or time.monotonic() >= deadline:
                raise
        time.sleep(POLL_SECONDS)
