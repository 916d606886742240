"""Finds the snapshot of a run that an id names, among the index files that the run has now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, product

from ..errors import SnapshotNotFound
from ..format.flush_range import FlushRange, flush_range_of, folder_of
from ..format.index_types import IndexSummary
from ..format.schema import RunInfo
from ..storage.base import Storage
from .index_files import IndexFile, WorkerIndex, read_index, read_summaries
from .saved_steps import SavedSteps, StepRange, is_in_range
from .snapshot import Snapshot, digest_of_path, id_of_digests, take

_MOST_TRIED = 1 << 18


def snapshot_named(storage: Storage, run: RunInfo, name: str, range_steps: StepRange | None = None) -> Snapshot:
    """Return the snapshot of a run that has an id.

    A worker publishes its files one after another, and all workers do so at about the same time. So a snapshot has the
    files up to a time, with one more or one less of some workers.

    Raises:
        SnapshotNotFound: No such set of files has the id.
        StorageError: The storage refused an operation.
    """
    now = take(storage, run, range_steps=range_steps, source=storage)
    if now.id == name:
        return now
    for files in _histories(storage, now, range_steps or (None, None)):
        if chosen := _set_named(files, name):
            return _snapshot_of(now, chosen)
    raise SnapshotNotFound(
        storage.url,
        f"the run has no snapshot {name!r}: its files were compacted, its workers were far apart, or it was taken of "
        "another run or with other range_steps. Pass the snapshot itself, which can be pickled, instead of its id",
    )


def _histories(storage: Storage, now: Snapshot, range_steps: StepRange) -> Iterator[list[IndexFile]]:
    """Yield the index files in the order of publishing: the current ones, and those that were not compacted."""
    current, flushed = list[IndexFile](), list[IndexFile]()
    for worker, index in now.index.items():
        _, files = read_index(storage, worker)
        older = read_summaries(storage, index.superseded)
        found = [IndexFile(worker, path, summary) for path, _, summary in older if isinstance(summary, IndexSummary)]
        current += files
        flushed += [file for file in [*files, *found] if file.summary.compacted_at is None]
    for each in (current, flushed):
        kept = [file for file in each if any(is_in_range(step.global_step, range_steps) for step in file.summary.steps)]
        yield sorted(kept, key=lambda file: max(step.saved_at_us for step in file.summary.steps))


def _set_named(files: Sequence[IndexFile], name: str) -> list[IndexFile]:
    """Return a set of index files whose snapshot has the id `name`; empty if no set that is tried has it.

    Each set holds the files published up to one moment. A worker may have one file more or one less than that.
    """
    of_worker: dict[str, list[IndexFile]] = {}
    for file in files:
        of_worker.setdefault(file.worker, []).append(file)
    digests = {
        worker: list(accumulate((digest_of_path(file.path) for file in own), initial=0))
        for worker, own in of_worker.items()
    }
    counts = dict.fromkeys(of_worker, 0)
    are_few = 3 ** len(of_worker) * len(files) <= _MOST_TRIED
    shifts = list(product((0, -1, 1) if are_few else (0,), repeat=len(of_worker)))
    for file in files:
        counts[file.worker] += 1
        for shift in shifts:
            ends = {each: max(0, count + by) for (each, count), by in zip(counts.items(), shift, strict=True)}
            if id_of_digests(digests[each][: end + 1][-1] for each, end in ends.items()) == name:
                return [file for each, end in ends.items() for file in of_worker[each][:end]]
    return []


def _snapshot_of(now: Snapshot, files: Sequence[IndexFile]) -> Snapshot:
    """Return the snapshot with some index files, in which a worker has ended if its last file is one of them."""
    held: dict[str, dict[str, dict[str, FlushRange | None]]] = {worker: {} for worker in now.index}
    for file in files:
        held[file.worker].setdefault(folder_of(file.path), {})[file.path] = flush_range_of(file.path)
    ends = {name: mark for name, mark in now.workers.ends.items() if _covers(files, mark.last_index_file)}
    names = now.workers.end_names - (now.workers.ends.keys() - ends.keys())
    return replace(
        now,
        workers=replace(now.workers, end_names=names, ends=ends),
        index={worker: WorkerIndex(held=of_worker) for worker, of_worker in held.items()},
        steps=SavedSteps().added(files, now.range_steps),
    )


def _covers(files: Sequence[IndexFile], path: str | None) -> bool:
    """Return whether an index file is among some files, or a compacted one is that has its rows."""
    if not path or (flushes := flush_range_of(path)) is None:
        return True
    ranges = (flush_range_of(file.path) for file in files if folder_of(file.path) == folder_of(path))
    return any(of is not None and of.supersedes(flushes) for of in ranges)
