"""The claim of a worker on a run: it decides which process may write, and from which step on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from urllib.parse import unquote

from ..errors import AlreadyPublished, FileError, RunExists, StorageError, WorkerClaimed
from ..format.footer import row_groups
from ..format.schema import (
    COLLECTIONS,
    END,
    INDEX,
    MANIFEST,
    MARKED_END,
    RUN_FILE,
    STOP_FILE,
    TENSORS,
    FirstFlush,
    RunInfo,
    WorkerInfo,
    chunk_folder,
    collections_path,
    end_path,
    flush_range_of,
    folder_of,
    index_folder,
)
from ..format.verified_files import verified_files
from ..snapshot.index_files import list_index
from ..snapshot.snapshot import take_twice
from ..storage.open import Storage
from .lease import LeaseInfo, Observer, read_leases
from .progress import Progress, SavedStep, after, in_step_with, latest, lies_at, rewound
from .supersession import supersede_after

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
_EARLY = ". {} ended before its first step: a process that starts workers closes its own hook after them"
REMAINS = "it has files of a run but no run.json, as after a killed deletion or move; `tensortrial rm` deletes them"


def check_out_dir(storage: Storage, worker: str, num_workers: int) -> None:
    """Check that a new run may begin in the storage.

    Raises:
        ConfigurationError: Nothing can be written there.
        RunExists: It holds a run, unless it is of this job, and this worker has not joined it. Others may have ended.
    """
    try:
        run = RunInfo.from_bytes(storage.read_document(RUN_FILE), storage.url)
    except FileNotFoundError:
        if has_remains(storage):  # readers would take them for files of the new run
            raise RunExists(storage.url, f"{REMAINS}; resume=True continues that run") from None
        storage.check_writable()
        return
    claimed = collections_path(worker).rpartition("/")[2] in storage.list(COLLECTIONS)
    if claimed or run.num_workers != num_workers or has_ended(storage, worker) or len(storage.list(END)) >= num_workers:
        ended_early = has_ended(storage, worker) and not storage.list(index_folder(worker))
        raise RunExists(
            storage.url,
            "holds a run already, which is never overwritten: choose another out_dir, continue that run "
            "with resume=True, or pass on_exists='number' for a new folder each time or on_exists='replace' to delete "
            f"that run{_EARLY.format(worker) if ended_early else ''}",
        )


def has_remains(storage: Storage) -> bool:
    """Return whether a folder has files of a run but no run.json, as after a move or deletion that was killed."""
    folders = {INDEX: "worker=", TENSORS: "mode=", COLLECTIONS: "worker_"}
    known = folders.keys() & storage.list("")
    found = any(name.startswith(folders[folder]) for folder in known for name in storage.list(folder))
    return found and RUN_FILE not in storage.list("")  # a worker may have begun the run meanwhile


def has_ended(storage: Storage, worker: str) -> bool:
    """Return whether a worker has ended its run, or another process has marked the run as ended."""
    return not {end_path(worker), MARKED_END}.isdisjoint(f"{END}/{name}" for name in storage.list(END))


def claim(storage: Storage, run: RunInfo, worker: WorkerInfo, joins: bool = True) -> None:
    """Begin a new run. A worker that `joins` may also become a further worker of a run that has just begun.

    Raises:
        RunExists: The storage holds another run.
        WorkerClaimed: Another process writes as this worker.
    """
    try:
        storage.create(RUN_FILE, run.to_bytes())
    except AlreadyPublished:
        if not joins:
            raise RunExists(storage.url, "another process has begun a run here: choose another out_dir") from None
        check_out_dir(storage, worker.worker, worker.num_workers)
    try:
        storage.create(collections_path(worker.worker), worker.to_bytes())
    except AlreadyPublished as exc:
        raise WorkerClaimed(
            storage.url,
            f"another process writes to this run as {worker.worker}: set a different rank in each process (RANK and "
            "WORLD_SIZE, or torch.distributed), or an out_dir of its own",
        ) from exc


def claim_again(
    storage: Storage,
    run: RunInfo,
    worker: WorkerInfo,
    skipped: int = 0,
    check: Callable[[], None] = lambda: None,
    back_to: Mapping[str, int] | None = None,
) -> FirstFlush:
    """Continue a run, with the session and the steps that `progress` found.

    If the session goes back, the steps saved after its first one are superseded.

    Args:
        storage: The run.
        run: The content of `run.json` if a crash has left none.
        worker: The claim.
        skipped: The number of flushes that another process may be about to publish. Their numbers are left out.
        check: Raises an error if another process has taken the run over. That may happen during each slow call, after
            which this process would change the other one's session.
        back_to: By worker, the global step from which on its steps are superseded. Default: the session's first step.

    Returns:
        The first flush.
    """
    storage.remove(MANIFEST)
    try:
        storage.create(RUN_FILE, run.to_bytes())
    except AlreadyPublished:
        RunInfo.from_bytes(storage.read_document(RUN_FILE), storage.url)
    check()
    storage.replace(collections_path(worker.worker), worker.to_bytes())
    for path in (end_path(worker.worker), MARKED_END, STOP_FILE):
        check()
        storage.remove(path)
    if worker.goes_back:
        _supersede_later_steps(storage, worker, skipped, check, back_to or {})
    first = next_flush(storage, worker.worker)
    return first._replace(number=first.number + skipped) if first.number else first


def _supersede_later_steps(
    storage: Storage, worker: WorkerInfo, skipped: int, check: Callable[[], None], back_to: Mapping[str, int]
) -> None:
    """Supersede the steps after the first one of this worker, and of workers that have left its job.

    The other workers of the job supersede their own steps, because they may go back to other steps. A worker whose name
    does not show that it is in the job may claim and publish meanwhile. Its flushes with smaller numbers than its next
    one had before are of an earlier session.
    """
    others = [each for each in _indexed_workers(storage) if not _is_of_job(each, worker)]
    workers = {worker.worker, *others}
    flushes = {each: next_flush(storage, each).number + skipped for each in sorted(workers)}
    for each, flush in flushes.items():
        if each == worker.worker or has_left_job(storage, worker, each):
            supersede_after(storage, each, back_to.get(each, worker.first_global_step), flush, check)


def has_left_job(storage: Storage, worker: WorkerInfo, other: str) -> bool:
    """Return whether a worker has left another's job: by its name, and by a claim of an earlier session."""
    try:  # a listing could lag behind, a read does not
        return not _is_of_job(other, worker) and _claim_at(storage, collections_path(other)).session < worker.session
    except FileNotFoundError:
        return True


def _is_of_job(other: str, worker: WorkerInfo) -> bool:
    number = other.removeprefix("worker_")
    return number.isdecimal() and int(number) < worker.num_workers


class Resumption:
    """The session in which a worker resumes a run: one that another worker of its job has opened, or a new one.

    With `follows`, for a process that writes nothing, only an open session is found. A session that has the number that
    was `expected` was opened since then, by this job.
    """

    def __init__(
        self,
        storage: Storage,
        worker: str,
        num_workers: int,
        observer: Observer | None = None,
        follows: bool = False,
        expected: int | None = None,
    ) -> None:
        self._storage = storage
        self._observer = observer or Observer(storage)
        self._worker, self._num_workers, self._follows = worker, num_workers, follows
        self.leases = read_leases(storage)
        self._claims = dict(_claims(storage))
        self.session = self._session(expected)
        self.back_to: dict[str, int] = {}
        """The global step of the checkpoint, by worker. `progress` fills it in."""

    def in_the_way(self) -> list[LeaseInfo]:
        """Return the leases that must not be alive: all of earlier sessions, and the worker's own."""
        return [lease for lease in self.leases if lease.session < self.session or lease.worker == self._worker]

    def late(self) -> list[LeaseInfo]:
        """Return the leases of earlier sessions that were written after this resumption had read the leases."""
        known = {lease.path for lease in self.leases}
        leases = read_leases(self._storage)
        return [lease for lease in leases if lease.session < self.session and lease.path not in known]

    def wait_for_opener(self, own: LeaseInfo) -> None:
        """Wait, at most as long as a lease lasts, until the workers that joined the session earlier have claimed it.

        The worker that opened it may still wait for the last publication of a process that it takes over. The first
        step of the session comes after that.
        """
        deadline = time.monotonic() + own.seconds
        while time.monotonic() < deadline:
            claimed = {worker for worker, claim in _claims(self._storage) if claim.session >= self.session}
            leases = (lease for lease in read_leases(self._storage) if lease.session == own.session)
            before = [each for each in leases if (each.started_at, each.worker) < (own.started_at, own.worker)]
            if claimed or not self._observer.alive(before):
                return
            time.sleep(_POLL_SECONDS)

    def progress(self, at: tuple[str, int] | None = None) -> Progress:
        """Return the point at which the worker's steps continue.

        Workers that are in step continue together, after the last step of any of them. The first one may publish before
        the last one reads the index, so it writes the point into its claim. A worker that is not in step with others
        continues after its own steps, and a worker that is new to the run where the others continue.

        Args:
            at: The mode and the number of the step that comes next, if the worker goes back to a checkpoint.
        """
        saved = saved_steps(self._storage, self._claims)
        # Claims are read after the steps, some of which a worker of this session may have published already.
        claims = [
            each for name, each in _claims(self._storage) if name != self._worker and each.session == self.session
        ]
        for each in claims:
            steps = saved.get(each.worker, ())
            saved[each.worker] = [step for step in steps if step.global_step < each.first_global_step]
        own, in_step = saved.get(self._worker, []), in_step_with(self._worker, saved)
        # Nothing shows with which other workers a worker that is new to the run is in step.
        opened = [claim for claim in claims if claim.worker in in_step and (saved[claim.worker] or not own)]
        if at is not None:
            by_others = (point for point in map(_first_point, opened) if lies_at(point, own, *at))
            found = next(by_others, None) or rewound(list(chain(*in_step.values())), *at)
            alike = {self._worker, *(in_step if own else ())}
            self.back_to = {
                worker: found.global_step if worker in alike else rewound(steps, *at).global_step
                for worker, steps in saved.items()
            }
        elif opened and not own and all(claim.goes_back for claim in opened):
            found = latest([_first_point(claim) for claim in opened])
        else:
            forward = [_first_point(claim) for claim in opened if not claim.goes_back]
            found = latest([*forward, *map(after, in_step.values())])
        return replace(found, session=self.session)

    def _session(self, expected: int | None) -> int:
        members: list[WorkerInfo | LeaseInfo] = [*self._claims.values(), *self.leases]
        newest = max((each.session for each in members), default=-1)
        own = max((each.session for each in members if each.worker == self._worker), default=-1)
        opened = [each for each in members if each.session == newest and each.worker != self._worker]
        if own < newest and (newest == expected or any(self._is_of_this_job(each) for each in opened)):
            return newest
        return newest + 1

    def _is_of_this_job(self, member: WorkerInfo | LeaseInfo) -> bool:
        if member.num_workers != self._num_workers:
            return False
        key = member.worker, member.session
        leases = [lease for lease in self.leases if (lease.worker, lease.session) == key]
        if self._observer.alive(leases):
            return True
        # A worker that has finished may be of this job, which was quick, or of an earlier one. A worker that began the
        # run, or was killed, is of an earlier job.
        finished = all(lease.released_at is not None for lease in leases)
        return finished and member.session > 0 and not self._follows


def _first_point(claim: WorkerInfo) -> Progress:
    return Progress(claim.session, claim.first_global_step, claim.first_mode_steps)


def saved_steps(storage: Storage, claimed: Iterable[str] = ()) -> dict[str, list[SavedStep]]:
    """Return the steps that each worker has published. A warning names index files that are damaged or missing.

    Raises:
        StorageError: A file cannot be read for a cause that may pass.
    """
    # A loss of power may take a claim, and leave what the worker published.
    snapshot = take_twice(storage, sorted({*claimed, *_indexed_workers(storage)}))
    found = dict[str, list[SavedStep]]()
    for worker, index in snapshot.index.items():
        found[worker] = list(map(SavedStep._make, snapshot.steps.of_worker(worker).columns.keys()))
        found[worker] += _steps_of_chunks(storage, worker, index.damaged)
    return found


def _steps_of_chunks(storage: Storage, worker: str, damaged: Mapping[str, FileError]) -> Iterator[SavedStep]:
    """Yield the last steps of the chunks that damaged index files may name: mode, step of the mode, global step."""
    for error in damaged.values():
        if isinstance(error, StorageError):
            raise error
        logger.warning(
            "run %s: continued without the steps of a damaged file: %s. Its flush number stays taken; run "
            "`tensortrial verify %s` to see what is lost",
            storage.url,
            error,
            storage.url,
        )
    lost = [flushes for path in damaged if (flushes := flush_range_of(path))]
    for mode in storage.list(TENSORS) if lost else ():
        for step in storage.list(f"{TENSORS}/{mode}"):
            folder = chunk_folder(mode.removeprefix("mode="), step, worker)
            for name in storage.list(folder):
                of = flush_range_of(name)
                if of is None or not any(each.supersedes(of) for each in lost):
                    continue
                # A damaged chunk is ignored here. Readers of the run name it.
                with suppress(FileError, ValueError, LookupError, TypeError, FileNotFoundError):
                    path = f"{folder}/{name}"
                    for group in row_groups(verified_files(storage).footer(path)):
                        (_, mode_step), (_, global_step) = group.ends["mode_step"], group.ends["global_step"]
                        yield SavedStep(mode.removeprefix("mode="), mode_step, global_step)


def _indexed_workers(storage: Storage) -> list[str]:
    """Return the workers that have a folder in the index, with or without a claim."""
    return [unquote(name.removeprefix("worker=")) for name in storage.list(INDEX) if name.startswith("worker=")]


def next_flush(storage: Storage, worker: str) -> FirstFlush:
    """Return the flush after all of this worker, including one that crashed between its values and its index."""
    # List twice, because the first listing may show neither file of a flush that is just being compacted.
    names = [*list_index(storage, worker), *list_index(storage, worker)]
    # If a session went back, several folders have the same last flush.
    numbered = [(flushes.last, name) for name in names if (flushes := flush_range_of(name))]
    for mode in storage.list(TENSORS):
        for step in storage.list(f"{TENSORS}/{mode}"):
            names += storage.list(chunk_folder(mode.removeprefix("mode="), step, worker))
    number = max((flushes.last for name in names if (flushes := flush_range_of(name))), default=-1) + 1
    _, previous = max(numbered, default=(0, ""))
    return FirstFlush(number, previous, folder_of(max((name for _, name in numbered), default="")))


def _claims(storage: Storage) -> Iterator[tuple[str, WorkerInfo]]:
    for name in storage.list(COLLECTIONS):
        info = _claim_at(storage, f"{COLLECTIONS}/{name}")
        yield info.worker, info


def _claim_at(storage: Storage, path: str) -> WorkerInfo:
    try:
        return WorkerInfo.from_bytes(storage.read_document(path), path)
    except ValueError as exc:
        raise FileError(path, f"the run cannot be continued: {exc}") from exc
