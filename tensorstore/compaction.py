"""Compaction: many small index files of a run become few, while the run is written and read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from .errors import AlreadyPublished, CorruptFile, FileError
from .flushes import Flushes, flushes_of, folder_of, range_path, widest
from .index import IndexSummary, joined, read_rows, write_compacted
from .index_files import list_index, read_summaries
from .progress_bar import progress_bar
from .storage import ByteRange, Storage, open_storage, translated
from .trial import run_info
from .workers import Workers

GRACE_SECONDS = 60.0
"""How long files stay after they were compacted: for readers that have begun to read them."""

_BLOCK = 64
"""While the job runs, so many flushes become one file, and so many of those."""
_SHARE = 8
"""Into so many parts, again and again, what would be too large is divided."""
_ROWS = 1 << 20
"""No file of more rows is made: they are sorted in memory."""
_TICK_SECONDS = 0.5


@dataclass(frozen=True)
class Compaction:
    """What `compact` has done."""

    files_before: int
    bytes_before: int
    """Index files of the run, and what those weigh that can be read."""
    files_after: int
    bytes_after: int
    damaged: Mapping[str, FileError] = field(default_factory=dict)
    """Index files that cannot be read, and why. They were left as they are."""


class _File(NamedTuple):
    path: str
    flushes: Flushes
    size: int
    summary: IndexSummary


def compact(
    path: str | os.PathLike[str],
    *,
    grace: float = GRACE_SECONDS,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Compaction:
    """Put the many small index files of the run at `path` into few: opening and querying it gets faster.

    Safe while the run is written and read, and at any interruption: what was compacted is deleted only once all of it
    is in a file that has been there for `grace` seconds, which this waits for. Compacting again finishes what was
    interrupted. While the job runs, flushes are put together by 64, and by thousands of steps once those are over; when
    it has ended, all. Raw values stay where they are. `progress` shows a bar where tqdm is installed.

    Raises RunNotFound, NotARun, MissingCollectionFiles, UnknownFormat, and StorageError.
    """
    storage = open_storage(path, storage_options)
    run_info(storage)
    return _Compactor(storage, grace, progress).run()


class _Compactor:
    def __init__(self, storage: Storage, grace: float, progress: bool) -> None:
        self._storage = storage
        self._grace = grace
        self._progress = progress
        self._damaged: dict[str, FileError] = {}
        self._sizes: dict[str, int] = {}
        workers = Workers(storage)
        workers.refresh()
        self._workers = [info.worker for info in workers.infos]
        self._ended = workers.job_ended

    def run(self) -> Compaction:
        listed = self._listed()
        before = [path for paths in listed for path in paths]
        with progress_bar(len(before), self._progress, "compact", "file") as advance:
            for paths in listed:
                self._compact_worker(paths, advance)
        self._delete_covered()
        after = [path for paths in self._listed() for path in paths]
        weight = [sum(self._sizes.get(path, 0) for path in paths) for paths in (before, after)]
        return Compaction(len(before), weight[0], len(after), weight[1], self._damaged)

    def _listed(self) -> list[list[str]]:
        """The index files of each worker."""
        return [list_index(self._storage, worker) for worker in self._workers]

    def _summaries(self, paths: Sequence[str]) -> Iterator[tuple[str, IndexSummary | Exception]]:
        for path, size, summary in read_summaries(self._storage, paths):
            self._sizes[path] = size
            yield path, summary

    # Files of many flushes.

    def _compact_worker(self, paths: Sequence[str], advance: Callable[[float], object]) -> None:
        numbers = [flushes.last for path in paths if (flushes := flushes_of(path))]
        folders = _by_folder(paths)
        for folder, inside in folders.items():
            # Once a worker writes to a later folder it writes no more to this one.
            complete = self._ended or folder != max(folders)
            while not self._compact_folder(inside, complete, max(numbers, default=-1)):
                pass
            advance(len(inside))

    def _compact_folder(self, paths: Sequence[str], complete: bool, newest: int) -> bool:
        """False if a file turned out to be bad on the way: then the rest is another plan."""
        files = self._healthy(paths)
        for piece in _unspoilt(files, [path for path in paths if path in self._damaged]):
            groups = _fitting(piece, _SHARE**20) if complete else _finished(piece, newest)
            for group in groups:
                if len(group) > 1 and not self._merge(group):
                    return False
        return True

    def _healthy(self, paths: Sequence[str]) -> list[_File]:
        """The widest files that can be read, by their flushes."""
        files: dict[str, _File] = {}
        while True:
            wanted = widest(path for path in paths if path not in self._damaged and flushes_of(path))
            unread = [path for path in wanted if path not in files]
            if not unread:
                return [files[path] for path in wanted if path in files]
            for path, summary in self._summaries(unread):
                if isinstance(summary, IndexSummary):
                    flushes = flushes_of(path)
                    assert flushes is not None
                    files[path] = _File(path, flushes, self._sizes[path], summary)
                elif isinstance(summary, FileNotFoundError):
                    # Somebody else compacts this folder, and has got further.
                    return []
                elif isinstance(summary, CorruptFile):
                    self._damaged[path] = summary
                else:
                    raise summary

    def _merge(self, group: Sequence[_File]) -> bool:
        """Publish one file with the rows of the group. False if one of them turns out to be bad."""
        try:
            tables = [read_rows(file.path, data) for file, data in zip(group, self._contents(group), strict=True)]
            for file, table in zip(group, tables, strict=True):
                if table.num_rows != file.summary.rows:
                    raise CorruptFile(file.path, "it has not the rows that its footer speaks of")
        except CorruptFile as exc:
            self._damaged[exc.path] = exc
            return False
        except FileNotFoundError:
            return True  # somebody else has compacted it
        target = range_path(group[0].path, group[-1].path)
        sink = self._storage.sink(target)
        try:
            with translated(target, "write"):
                write_compacted(sink, tables, joined([file.summary for file in group]))
            sink.publish()
        except AlreadyPublished:
            return True  # somebody else has just done the same
        except BaseException:
            sink.abort()
            raise
        self._storage.sync(target)
        return True

    def _contents(self, group: Sequence[_File]) -> list[bytes | bytearray]:
        return self._storage.read_ranges([ByteRange(file.path, 0, file.size) for file in group])

    # Files that are not needed any more.

    def _delete_covered(self) -> None:
        covered = [pair for paths in self._listed() for pair in self._covered(paths)]
        if not covered:
            return
        youngest = max(wide.summary.compacted_at or 0.0 for wide, _ in covered)
        self._wait(min(self._grace, youngest + self._grace - time.time()))
        with progress_bar(sum(len(paths) for _, paths in covered), self._progress, "delete", "file") as advance:
            # In the order of their flushes: as long as a reader finds the last file that it knows, no later one that it
            # does not know is gone.
            for wide, paths in covered:
                self._storage.sync(wide.path)
                self._delete(wide, paths)
                advance(len(paths))

    def _covered(self, paths: Sequence[str]) -> Iterator[tuple[_File, list[str]]]:
        """The compacted files of a worker, each with those whose rows it holds, in the order of their flushes."""
        for inside in _by_folder(paths).values():
            numbered = [(path, flushes) for path in inside if (flushes := flushes_of(path))]
            for wide in self._healthy(inside):
                if wide.summary.compacted_at is None:
                    continue
                below = [(of, path) for path, of in numbered if wide.flushes.cover(of) and path != wide.path]
                if below:
                    yield wide, [path for _, path in sorted(below)]

    def _delete(self, wide: _File, paths: Sequence[str]) -> None:
        held = _tensors(wide.summary)
        for path, summary in self._summaries(paths):
            if isinstance(summary, IndexSummary) and _tensors(summary) <= held:
                self._storage.remove(path)
            elif isinstance(summary, FileError):
                self._damaged[path] = summary

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with progress_bar(round(max(0.0, seconds)), self._progress and seconds >= 1, "wait", "s") as advance:
            while (left := deadline - time.monotonic()) > 0:
                nap = min(left, _TICK_SECONDS)
                time.sleep(nap)
                advance(nap)


def _by_folder(paths: Iterable[str]) -> dict[str, list[str]]:
    """The paths in each folder, by folder: they are in the order of steps."""
    return {folder: list(inside) for folder, inside in groupby(sorted(paths), folder_of)}


def _tensors(summary: IndexSummary) -> set[tuple[int, frozenset[Any]]]:
    """What a file holds: the tensors of each of its steps."""
    names = [frozenset(each) for each in summary.name_sets]
    return {(step.global_step, names[step.names]) for step in summary.steps}


def _unspoilt(files: Sequence[_File], damaged: Sequence[str]) -> Iterator[list[_File]]:
    """Runs of files without a damaged one between them, which a wider one would seem to hold."""
    spoilt = sorted(flushes for path in damaged if (flushes := flushes_of(path)))
    piece: list[_File] = []
    for file in files:
        before = piece[-1].flushes.last if piece else -1
        if any(bad.first <= file.flushes.last and bad.last > before for bad in spoilt):
            yield piece
            piece = []
        if not any(bad.first <= file.flushes.last and bad.last >= file.flushes.first for bad in spoilt):
            piece.append(file)
    yield piece


# Two that compact the same files at the same time, or one after the other, must never make two files that share only
# some flushes. So what is not a whole folder is a block that begins at a multiple of its size.


def _finished(files: Sequence[_File], newest: int) -> Iterator[list[_File]]:
    """The largest blocks of flushes to which no flush will be added, given the newest."""
    size = _BLOCK
    while size * _BLOCK <= newest + 1:
        size *= _BLOCK
    yield from _finished_blocks(files, newest, size)


def _finished_blocks(files: Sequence[_File], newest: int, size: int) -> Iterator[list[_File]]:
    for block, inside in _blocks(files, size):
        if (block + 1) * size <= newest + 1:
            yield from _fitting(inside, size)
        elif size > _BLOCK:
            yield from _finished_blocks(inside, newest, size // _BLOCK)


def _fitting(files: Sequence[_File], size: int) -> Iterator[list[_File]]:
    """The files, in parts that are not too large; `size` is that of the block they are in."""
    if sum(file.summary.rows for file in files) <= _ROWS:
        yield list(files)
    elif size > _SHARE:
        for _, inside in _blocks(files, size // _SHARE):
            yield from _fitting(inside, size // _SHARE)


def _blocks(files: Sequence[_File], size: int) -> Iterator[tuple[int, list[_File]]]:
    """The files in each block of flushes, without those that reach over its end."""
    whole = [file for file in files if file.flushes.first // size == file.flushes.last // size]
    for block, inside in groupby(whole, lambda file: file.flushes.first // size):
        yield block, list(inside)
