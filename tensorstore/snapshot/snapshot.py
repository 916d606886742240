"""Takes the snapshot of a run. Only this module lists a run for its readers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from xxhash import xxh3_64_intdigest

from ..errors import CorruptFile, FileError, MissingCollectionFiles, NotARun, RunNotFound, StorageError
from ..forking import lazy
from ..format.index_types import IndexSummary
from ..format.schema import COLLECTIONS, LEASES, MANIFEST, RUN_FILE, RunInfo, flush_range_of
from ..storage.base import FileSource, Storage
from .index_files import IndexFile, WorkerIndex, read_index, read_summaries, without_replaced
from .manifest import Manifest, read_manifest
from .saved_steps import SavedSteps, StepRange
from .workers import Workers, finished, read_claims, read_workers

PENDING_SECONDS = 60.0
"""The seconds after which a file that cannot be read counts as lost."""

LISTED_SECONDS = 600.0
"""The seconds after which all files are listed again. Compaction deletes superseded files, by default after an hour."""

_T = TypeVar("_T")
_Indexes = Mapping[str, WorkerIndex]
_MISSING = "there is no run here; create_trial(..., timeout=SECONDS) waits that long for one"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A run at one moment: its workers, its index files and the steps in them. It never changes."""

    run: RunInfo | None
    """The `run.json` of the run; None where it was not read."""
    range_steps: StepRange | None = None
    """Global steps outside a <= step < b of (a, b) are left out."""
    workers: Workers = field(default_factory=Workers)
    index: _Indexes = field(default_factory=dict)
    """By worker."""
    steps: SavedSteps = field(default_factory=SavedSteps)
    manifest: Manifest | CorruptFile | None = None
    """The manifest that opened the run, or its error. None if the run was opened by listing, or has changed since."""
    unreadable: Mapping[str, FileError] = field(default_factory=dict)
    """The errors of files that were found damaged when more than their footer was read."""
    unread: Mapping[str, float] = field(default_factory=dict)
    """The files with an error that may pass, each with the time of its first failure."""
    waiting: Sequence[IndexFile] = ()
    """Files that replaced others since. Other steps in them are new in the next snapshot."""
    going_back: frozenset[tuple[str, int]] = frozenset()
    """The workers, with their sessions, that may still supersede steps of their own or of others."""
    listed_at: float = field(default_factory=time.monotonic)
    """The time of the last listing of all files, by the monotonic clock."""
    is_outdated: bool = False
    """True if `steps` has steps that were superseded since. Then the next snapshot is taken without this one."""

    @lazy
    def id(self) -> str:
        """16 hexadecimal digits: a digest of the paths of the index files. Equal sets of files have equal ids."""
        return id_of_digests(map(digest_of_path, self.steps.files()))

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"Snapshot({self.id!r}, index_files={len(self.steps.files())})"

    @lazy
    def damaged(self) -> dict[str, FileError]:
        """The errors of all files that cannot be read, by their paths."""
        found = dict(self.workers.damaged)
        for index in self.index.values():
            found |= index.damaged
        of_manifest = {MANIFEST: self.manifest} if isinstance(self.manifest, CorruptFile) else {}
        return {**found, **self.unreadable, **of_manifest}

    @lazy
    def _unread(self) -> dict[str, float]:
        found = dict(self.unread)
        for index in self.index.values():
            found |= index.unread
        return found

    @property
    def pending(self) -> dict[str, FileError]:
        """The damaged files that may be read yet: the cause may pass."""
        return {path: self.damaged[path] for path in self._unread if path in self.damaged and self.is_pending(path)}

    @property
    def job_ended(self) -> bool:
        """True if the job has ended and no file remains whose error may pass, so that nothing new can come."""
        return self.workers.job_ended and not self.pending

    @property
    def steps_begun(self) -> int:
        """The number of global steps begun; of a running job, from the first to the last saved one; 0 of an import."""
        steps, ends = self.steps.columns.global_step, self.workers.ends.values()
        saved = int(np.ptp(steps)) + 1 if len(steps) else 0
        is_import = any(end.worker and (end.session, end.steps) == (None, None) for end in ends)
        # A later session also counts the steps before the first one of the run.
        before = int(steps.min()) if len(steps) and self.workers.newest_session else 0
        return 0 if is_import else max([saved, *((end.steps or 0) - before for end in ends)])

    @property
    def is_listing_due(self) -> bool:
        """True if files that were superseded since may soon be deleted, or if the clock is another machine's."""
        return not 0 <= time.monotonic() - self.listed_at < LISTED_SECONDS

    def is_closed(self, source: FileSource) -> bool:
        """Return whether every worker has ended by itself, and no session has begun since. Costs one listing."""
        if not self.workers.job_ended or self.damaged or self.waiting:
            return False
        return self.index.keys() <= finished(source, self.workers, self.workers)

    def is_pending(self, path: str) -> bool:
        """Return whether a file cannot be read for a cause that may pass, and not for long."""
        return path in self._unread and time.monotonic() - self._unread[path] < PENDING_SECONDS

    def with_damaged(self, error: FileError) -> Snapshot:
        """Return the snapshot after a file was found damaged. The first error of a file is kept."""
        return self if error.path in self.damaged else replace(self, unreadable={**self.unreadable, error.path: error})

    def with_unread(self, path: str) -> Snapshot:
        """Return the snapshot after a file could not be read because of an error that may pass."""
        return replace(self, unread={path: time.monotonic(), **self.unread})

    def with_readable(self, paths: Iterable[str]) -> Snapshot:
        """Return the snapshot after these files, some of which were unread, could be read."""
        if not self.unread or not (read := self.unread.keys() & set(paths)):
            return self
        unread = {path: lost_at for path, lost_at in self.unread.items() if path not in read}
        unreadable = {path: error for path, error in self.unreadable.items() if path not in read}
        return replace(self, unreadable=unreadable, unread=unread)


def digest_of_path(path: str) -> int:
    """Return the part of an index file in the ids of snapshots."""
    return xxh3_64_intdigest(path.encode(errors="surrogateescape"))


def id_of_digests(digests: Iterable[int]) -> str:
    """Return the id of a snapshot by the digests of its files, or by sums of some of them."""
    return f"{sum(digests) % (1 << 64):016x}"


def take(
    storage: Storage,
    run: RunInfo | None = None,
    since: Snapshot | None = None,
    *,
    range_steps: StepRange | None = None,
    claims: bool = False,
    is_full: bool = False,
    workers: Iterable[str] | None = None,
) -> Snapshot:
    """Take a snapshot of a run.

    Args:
        storage: The run.
        run: Its `run.json`; None to list the run in any case, and not to open it by a manifest.
        since: What was known of it. Only what is new is read; if nothing is, `since` itself is returned.
        range_steps: Leaves out every global step outside a <= step < b of (a, b).
        claims: Read the claims again, which no listing shows to have changed: a worker resumes, or saves other
            collections. They are also read again if there are new files.
        is_full: List all files again.
        workers: Read the index files of these workers, whether or not they have claims, and nothing else. Default: the
            claims and end marks, and the index files of all workers that have a claim.

    Raises:
        StorageError: The storage refused an operation.
        UnknownFormat: A later release wrote a file.
    """
    if since is None or since.is_outdated:
        # On a disk the manifest is not read, because listing a folder costs nothing there and shows every change.
        manifest = None if run is None or storage.is_local else read_manifest(storage, run)
        if isinstance(manifest, Manifest):
            manifest.keep_ends(storage)
        source = manifest if isinstance(manifest, Manifest) else storage
        return _next(source, Snapshot(run, range_steps, manifest=manifest), only=workers)
    if isinstance(since.manifest, Manifest):
        if since.manifest.is_current(storage) and not since.is_listing_due:
            return since
        since, claims = replace(since, manifest=None), True
    now = _next(storage, since, claims, is_full, workers)
    # A job went back to a checkpoint. What is known of the run was read in another order, and is read again.
    return take(storage, run, range_steps=since.range_steps, workers=workers) if now.is_outdated else now


def take_twice(storage: Storage, workers: Iterable[str]) -> Snapshot:
    """Return the index files of some workers as two listings show them.

    What one listing lacks, because it lags behind, would be written again.
    """
    names = list(workers)
    return take(storage, since=take(storage, workers=names), workers=names, is_full=True)


def _next(
    source: FileSource, since: Snapshot, claims: bool = False, is_full: bool = False, only: Iterable[str] | None = None
) -> Snapshot:
    is_full = is_full or since.is_listing_due
    if not is_full and since.is_closed(source):
        return since
    # The workers first: one that had ended before the index is listed can have added nothing since.
    workers = since.workers if only is not None else read_workers(source, since.workers)
    is_first, names = not since.workers.claims, workers.names if only is None else list(only)
    ended = () if is_full or is_first or only is not None else finished(source, workers, since.workers)
    changing = [name for name in names if name not in ended or name not in since.index or since.index[name].damaged]
    index, files = _read_indexes(source, workers, since.index, changing, is_full)
    if not is_first and only is None and (claims or index is not since.index):
        workers = read_claims(source, workers)
    if workers is since.workers and index is since.index and not (is_full or since.going_back or since.waiting):
        return since
    # A file that supersedes steps may sort before the last known one, and may belong to a worker that has ended. It is
    # written after the claim of a session, and before that session's worker saves anything or ends.
    opened = {(info.worker, info.session) for info in workers.writing if info.goes_back}
    # A file of several flushes is compacted, or supersedes steps.
    saved = {file.worker for file in files if file.flushes.first == file.flushes.last}
    waited = {(worker, session) for worker, session in since.going_back if worker not in saved}
    known = {(info.worker, info.session) for info in since.workers.infos}
    going_back = frozenset(opened & (waited | (opened - known)))
    opens = not is_first and workers.newest_session > since.workers.newest_session
    if opens or going_back or since.going_back:
        index, more = _read_indexes(source, workers, index, names)
        files, is_full = [*files, *more], True
    is_same = workers is since.workers and index is since.index and going_back == since.going_back
    if is_same and not since.waiting and not since.is_listing_due:
        return since
    files = without_replaced([*since.waiting, *files])
    steps = since.steps.compacted(files).added(files, since.range_steps)
    return replace(
        since,
        workers=workers,
        index=index,
        steps=steps,
        waiting=(),
        going_back=going_back,
        listed_at=time.monotonic() if is_full else since.listed_at,
        is_outdated=since.steps.lack(files) or steps.contradicts,
    )


def repeated(work: Callable[[], _T], remade: Callable[[], bool | None]) -> _T:
    """Return the result of `work`. Run it once more if a file was missing that other files have replaced.

    `remade` finds these files, and returns False if there are none. A file that is missing the second time is an error,
    which names it.
    """
    try:
        return work()
    except (CorruptFile, FileNotFoundError):
        if remade() is False:
            raise
    return work()


def after_compaction(storage: Storage, snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with the same steps in the files that hold them now: some were compacted since.

    Other news waits for the next snapshot. If no file was replaced, the snapshot itself is returned.
    """
    index, files = _read_indexes(storage, snapshot.workers, snapshot.index, snapshot.workers.names)
    steps = snapshot.steps.compacted(files)
    if steps is snapshot.steps:
        return snapshot
    return replace(
        snapshot,
        index=index,
        steps=steps,
        manifest=None,
        waiting=without_replaced([*snapshot.waiting, *files]),
        is_outdated=snapshot.is_outdated or snapshot.steps.lack(files),
    )


def superseded_files(storage: Storage, snapshot: Snapshot) -> list[str]:
    """Return the superseded index files that hold rows which no other file has, nor another one returned.

    Some of their rows may be in the files that supersede them. Files that cannot be read are left out.
    """
    indexes, _ = _read_indexes(storage, snapshot.workers, snapshot.index, snapshot.workers.names)
    left = list[str]()
    for index in indexes.values():
        # A compacted file stands for the files that it was made of, which are not returned as well.
        rest = sorted(index.superseded, key=lambda path: of.first - of.last if (of := flush_range_of(path)) else 0)
        held = set[object]()
        for path, _, summary in read_summaries(storage, [*index.files, *rest] if rest else ()):
            if isinstance(summary, IndexSummary) and not (tensors := summary.tensors()) <= held:
                held |= tensors
                left += [] if index.holds(path) else [path]
    return left


def _read_indexes(
    source: FileSource, workers: Workers, since: _Indexes, names: Iterable[str], is_full: bool = True
) -> tuple[_Indexes, list[IndexFile]]:
    """Return the indexes of the workers with these names, and the new files in them; `since` itself if none changed."""
    new, found, is_new = dict(since), list[IndexFile](), False
    for worker in names:
        known, last = since.get(worker), workers.last_index_file(worker)
        new[worker], files = read_index(source, worker, known, last=last, is_full=is_full)
        is_new |= new[worker] is not known
        found += files
    return (new if is_new else since), found


def run_info(storage: Storage, has_begun: bool = True) -> RunInfo:
    """Return the `run.json` of a run. With `has_begun`, list its claims, and raise an error if there are none.

    Raises RunNotFound, NotARun, MissingCollectionFiles, UnknownFormat.
    """
    info = RunInfo.from_bytes(read_run_file(storage), storage.url)
    if has_begun and not storage.list(COLLECTIONS):
        raise MissingCollectionFiles(storage.url, "the run has no collections: no worker has begun to save")
    return info


def read_run_file(storage: Storage, missing: str = _MISSING) -> bytes:
    """Return the content of a run's `run.json`. Raises RunNotFound, with the sentence `missing`, and NotARun."""
    try:
        for _ in range(2):  # a run may begin between the two
            try:
                return storage.read_document(RUN_FILE)
            except FileNotFoundError:
                # A job that resumes a run that never began writes a lease before anything else.
                if not storage.exists_any() or storage.list("") == [LEASES]:
                    raise RunNotFound(storage.url, missing) from None
    except CorruptFile as exc:
        raise NotARun(storage.url, str(exc)) from exc
    except StorageError as exc:
        # A reader of many runs must see which one cannot be read.
        if exc.path.startswith(storage.url):
            raise
        raise StorageError(storage.url, str(exc)) from exc
    raise NotARun(storage.url, _what_else(storage))


def _what_else(storage: Storage) -> str:
    if os.path.isfile(storage.url):
        return "this is a file, and a run is a folder"
    # smdebug numbers the folders of its collections.
    if any(name.isdecimal() for name in storage.list(COLLECTIONS)):
        return (
            "smdebug wrote this run. Import it with `tensortrial import smdebug SOURCE TARGET`, or with "
            "tensortrial.importers.smdebug.import_run(source, target), and open the target"
        )
    return f"there are files here, but no {RUN_FILE}: this is not a run; open_runs opens those in a folder"
