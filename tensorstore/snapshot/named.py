"""Finds the snapshot with a given id among the index files that the run has now."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from operator import attrgetter
from typing import NamedTuple

from ..errors import SnapshotNotFound
from ..format.index_types import IndexSummary
from ..format.schema import FlushRange, RunInfo, current_files, flush_range_of, flushes_in, folder_of
from ..storage.base import Storage
from .index_files import IndexFile, WorkerIndex, read_summaries
from .saved_steps import SavedSteps, StepRange, is_in_range
from .snapshot import Snapshot, digest_of_path, id_of_digests, take

_MOST_TRIED = 1 << 20
"""The most combinations of states for one half of the workers."""
_MOST_STATES = 1 << 16
"""The most states of a worker."""


class _State(NamedTuple):
    """The index files that a worker had at a moment."""

    at: float
    """The time of its last step, in seconds since 1970."""
    digest: int
    """The part of these files in the id of a snapshot."""
    files: Sequence[IndexFile]
    """Files in the order of their flushes. The state consists of the first `length` ones, without superseded ones."""
    length: int
    """The number of files, from the first one on, to which the state belongs."""


def snapshot_named(storage: Storage, run: RunInfo, name: str, range_steps: StepRange | None = None) -> Snapshot:
    """Return the snapshot of a run with this id.

    A worker's files had one state after each flush, before and after each compaction. If there are few combinations,
    all are tried; for many workers, those whose steps were saved at about the same time.

    Raises:
        SnapshotNotFound: No such set of files has the id.
        StorageError: The storage refused an operation.
    """
    if not isinstance(name, str) or not re.fullmatch("[0-9a-f]{16}", name):
        raise SnapshotNotFound(storage.url, f"the id of a snapshot must be 16 hexadecimal digits, got {name!r}")
    now = replace(take(storage, range_steps=range_steps), run=run)
    if now.id == name:
        return now
    of_workers = [_files(storage, worker, index) for worker, index in now.index.items()]
    for compactions in (slice(1), slice(-1, None), slice(None)):  # without any, with all, and others
        histories = [[*_states(files, compactions, range_steps or (None, None))] for files in of_workers]
        for chosen in _chosen(histories, name):
            files = [file for state in chosen for file in state.files[: state.length]]
            current = {*current_files(file.path for file in files)}
            return _snapshot_of(now, [file for file in files if file.path in current])
    raise SnapshotNotFound(
        storage.url,
        f"the run has no snapshot {name!r}: its files were compacted, its workers were far apart, or it was taken of "
        "another run or with other range_steps. Pass the snapshot itself, which can be pickled, instead of its id",
    )


def _files(storage: Storage, worker: str, index: WorkerIndex) -> list[IndexFile]:
    """Return the index files of a worker in the order of their flushes, superseded ones included."""
    found = read_summaries(storage, [*index.files, *index.superseded])
    files = [IndexFile(worker, path, of) for path, _, of in found if isinstance(of, IndexSummary) and of.steps]
    return sorted(files, key=lambda file: (file.flushes.last, -file.flushes.first))


def _states(files: Sequence[IndexFile], compactions: slice, range_steps: StepRange) -> Iterator[_State]:
    """Yield the states of a worker after each flush, with the first n compactions, for some n of 0 to all."""
    compacted = sorted(each.summary.compacted_at for each in files if each.summary.compacted_at is not None)
    some = [0.0, *compacted][compactions][-max(1, _MOST_STATES // max(1, len(files))) :]
    states = []
    for until in some:
        done = [file for file in files if (file.summary.compacted_at or 0.0) <= until]
        held, digest, at = dict[str, int](), 0, 0.0
        states.append(_State(at, digest, done, 0))
        for length, file in enumerate(done, 1):
            if file.summary.compacted_at is not None:
                folder, covers = folder_of(file.path), file.flushes.supersedes
                superseded = [path for path in held if folder_of(path) == folder and covers(flushes_in(path))]
                digest -= sum(map(held.pop, superseded))
            is_in = any(is_in_range(step.global_step, range_steps) for step in file.summary.steps)
            held[file.path] = digest_of_path(file.path) if is_in else 0
            digest += held[file.path]
            at = max(at, *(step.saved_at_us / 1e6 for step in file.summary.steps))
            states.append(_State(at, digest, done, length))
    yield from sorted(states, key=attrgetter("at"))


def _chosen(histories: Sequence[Sequence[_State]], name: str) -> Iterator[tuple[_State, ...]]:
    """Yield combinations of one state for each worker whose files have the id `name`."""
    half = len(histories) // 2
    moments = sorted({state.at for history in histories for state in history})
    longest = max(map(len, histories), default=0)
    for width in (longest, 64, 32, 16, 8, 4, 2, 1, 0):
        centers = moments if width < longest else moments[:1]
        sizes = [min(len(history), 2 * width + 1) for history in histories]
        if len(centers) * max(prod(sizes[:half]), prod(sizes[half:])) <= _MOST_TRIED:
            break
    for center in centers:
        near = [_near(history, center, width) for history in histories]
        # The states of one half of the workers are looked up for those of the other half.
        firsts = {id_of_digests(state.digest for state in states): states for states in product(*near[:half])}
        for states in product(*near[half:]):
            rest = id_of_digests([int(name, 16), *(-state.digest for state in states)])
            if rest in firsts:
                yield firsts[rest] + states


def _near(history: Sequence[_State], moment: float, width: int) -> Sequence[_State]:
    """Return the state of a worker at a moment, and some before and after it."""
    at = bisect_right(history, moment, key=attrgetter("at")) - 1
    return history[max(0, at - width) : at + width + 1]


def _snapshot_of(now: Snapshot, files: Sequence[IndexFile]) -> Snapshot:
    """Return the snapshot with some index files. A worker has ended in it if its last file is one of them."""
    held: dict[str, dict[str, dict[str, FlushRange]]] = {worker: {} for worker in now.index}
    for file in files:
        held[file.worker].setdefault(folder_of(file.path), {})[file.path] = file.flushes
    ends = {name: mark for name, mark in now.workers.ends.items() if _covers(files, mark.last_index_file)}
    names = now.workers.end_names - (now.workers.ends.keys() - ends.keys())
    return replace(
        now,
        workers=replace(now.workers, end_names=names, ends=ends),
        index={worker: WorkerIndex(held=of_worker) for worker, of_worker in held.items()},
        steps=SavedSteps().added(files, now.range_steps),
    )


def _covers(files: Sequence[IndexFile], path: str | None) -> bool:
    """Return whether some files include an index file, or a compacted one with its rows."""
    if not path or (flushes := flush_range_of(path)) is None:
        return True
    return any(file.flushes.supersedes(flushes) for file in files if folder_of(file.path) == folder_of(path))
