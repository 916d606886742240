"""The import of runs that smdebug wrote.

from tensortrial.importers.smdebug import import_run, import_runs

import_run("s3://bucket/old/job-1", "runs/job-1")
import_runs("s3://bucket/old", "runs")  # all jobs
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ...errors import ConfigurationError, FileError, NotARun, RunNotFound
from ...format.checksum import document_bytes
from ...format.schema import FROM_START, MARKED_END, FirstFlush, end_path
from ...progress import progress_bar
from ...storage.open import Storage, open_storage
from ...write.claim import claim, claim_again, saved_steps
from ...write.progress import SavedStep
from ..sources import folders_of_runs, url_below
from ..target import begun, end_marks, run_info, writing
from .run import Report, SmdebugRun, StepFiles, WorkerCollections, is_smdebug_run, runs_below
from .step import OpenStep, Plans, StepImport, opened_steps

logger = logging.getLogger(__name__)

QUEUE_BYTES = 64 << 20


def import_run(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    on_damage: Report | None = None,
) -> str:
    """Import the run that smdebug wrote to `source` into a new run at `target`.

    Everything that smdebug saved is kept: tensors, its reductions, shapes, modes, steps, workers, collections, times.
    Calling it again continues an interrupted import, or adds later steps. Unreadable parts, such as the incomplete last
    file of a killed job, are reported, and the rest is imported.

    Args:
        source: The folder of smdebug's run, as a path or a URL.
        target: Where the run goes, as a path or a URL.
        storage_options: The options of the storage of source and target.
        progress: Show a progress bar, if tqdm is installed.
        on_damage: Receives an error for each file that cannot be read. By default it is logged.

    Returns:
        The path of the new run.

    Raises:
        RunNotFound: The source is missing.
        NotARun: The source is not a run of smdebug.
        RunExists: The target holds another run.
        ConfigurationError: Source and target are the same.
    """
    old = open_storage(source, storage_options, follow_links=True)
    new = open_storage(target, storage_options)
    if old.url == new.url:
        raise ConfigurationError(f"{old.url} cannot be imported into itself: choose another target")
    if not is_smdebug_run(old):
        if not old.exists_any():
            raise RunNotFound(old.url, "no run was found here")
        raise NotARun(old.url, "it has no collections and no events, so it is not a run of smdebug")
    _Import(old, new, on_damage or _log).run(progress)
    return new.url


def import_runs(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    on_damage: Report | None = None,
) -> list[str]:
    """Import the run that smdebug wrote to `source`, or, if there is none, all of its runs in the folders below.

    A run in `source`/job-1/debug-output goes to `target`/job-1/debug-output, and its damaged files are reported with
    this folder in their paths. See `import_run`.

    Returns:
        The paths of the new runs.

    Raises:
        RunNotFound: The source is missing.
        NotARun: Neither the source nor a folder below it is a run of smdebug.
        RunExists: A target holds another run.
        ConfigurationError: Source and target are the same.
    """
    old = open_storage(source, storage_options, follow_links=True)
    report = on_damage or _log
    if is_smdebug_run(old) or not (folders := runs_below(old)):
        return [import_run(source, target, storage_options=storage_options, progress=progress, on_damage=report)]
    names = folders_of_runs(folders, old.url)
    return [
        import_run(
            f"{old.url}/{each}",
            url_below(target, [name.replace("/", "%2F") for name in names[each]], storage_options),
            storage_options=storage_options,
            progress=progress,
            on_damage=_naming(each, report),
        )
        for each in folders
    ]


def _naming(folder: str, report: Report) -> Report:
    """Return an `on_damage` for one of several runs, which adds the run's folder to the paths of files."""
    return lambda error: report(FileError(f"{folder}/{error.path}", str(error).removeprefix(f"{error.path}: ")))


def _log(error: FileError) -> None:
    logger.warning("left out of the import, which continues: %s", error)


class _Import:
    """One call of `import_run`."""

    def __init__(self, old: Storage, new: Storage, on_damage: Report) -> None:
        self._storage = new
        self._on_damage = on_damage
        self._damaged: dict[str, None] = {}
        self._old = SmdebugRun(old, self._report)
        self._resumes = begun(new, old.url) is not None

    def _report(self, error: FileError) -> None:
        self._damaged[error.path] = None
        self._on_damage(error)

    def run(self, progress: bool) -> None:
        saved = saved_steps(self._storage) if self._resumes else {}
        left = {worker: self._left(worker, saved.get(worker, ())) for worker in self._old.workers}
        if self._is_finished(left):
            return
        first_flush = self._claim()
        with progress_bar(sum(map(len, left.values())), progress, "import", "step") as advance:
            for worker, steps in left.items():
                self._import_worker(worker, steps, first_flush[worker], advance)
        if self._lacks_workers:
            mark = {"ended_at": datetime.now(UTC).isoformat(), "failure": "not all workers of the old run left files"}
            self._storage.replace(MARKED_END, document_bytes(mark))

    @property
    def _lacks_workers(self) -> bool:
        """True if readers would wait for workers that left no files."""
        return len(self._old.workers) < self._old.num_workers

    def _left(self, worker: str, saved: Sequence[SavedStep]) -> list[StepFiles]:
        """Return the steps that are not imported yet. Steps are imported in ascending order."""
        last = max((step.global_step for step in saved), default=-1)
        return [step for step in self._old.steps(worker) if step.global_step > last]

    def _is_finished(self, left: Mapping[str, Sequence[StepFiles]]) -> bool:
        if any(left.values()) or not self._resumes:
            return False
        marks = {end_path(worker) for worker in left} | ({MARKED_END} if self._lacks_workers else set())
        return marks <= end_marks(self._storage)

    def _claim(self) -> dict[str, FirstFlush]:
        """Claim the run as all its workers; return the first flush of each."""
        run = run_info(self._old.storage.url, "smdebug", list(self._first_times()), {}, self._old.num_workers)
        first_flush = {}
        for worker in self._old.workers:
            info = self._collections(worker).info(worker, run.num_workers, run.started_at)
            if self._resumes:
                first_flush[worker] = claim_again(self._storage, run, info)
            else:
                claim(self._storage, run, info)
                first_flush[worker] = FROM_START
        return first_flush

    def _collections(self, worker: str) -> WorkerCollections:
        return self._old.collections.get(worker) or WorkerCollections()

    def _first_times(self) -> Iterator[int]:
        """Yield the time of each worker's first tensor, in nanoseconds since 1970; 0 if unknown."""
        for worker in self._old.workers:
            if steps := self._old.steps(worker):
                yield OpenStep.open(self._old.storage, steps[0]).began_at()

    def _import_worker(
        self, worker: str, steps: Sequence[StepFiles], first_flush: FirstFlush, advance: Callable[[float], object]
    ) -> None:
        with writing(self._storage, worker, first_flush, queue_bytes=QUEUE_BYTES) as writer:
            plans = Plans(self._collections(worker))
            for opened in opened_steps(self._old.storage, steps):
                StepImport(opened, plans, writer, self._report).run()
                advance(1)
            writer.close(self._failure())

    def _failure(self) -> str | None:
        reasons = [] if self._old.ended else ["smdebug left no end mark"]
        if self._damaged:
            some = ", ".join(list(self._damaged)[:3])
            reasons.append(f"{len(self._damaged)} of its files could not be read whole: {some}")
        return "; ".join(reasons) or None
