"""Compaction, which merges the many small files of a run into few, while the run is written and read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from ..errors import (
    AlreadyPublished,
    CorruptFile,
    FileError,
    MissingChunk,
    MissingIndexFile,
    StorageError,
    UnknownFormat,
)
from ..format.chunk_merge import MergedChunks, flush_range_of_merged, merge_chunks
from ..format.index_reader import read_rows
from ..format.index_types import IndexSummary, joined
from ..format.index_writer import publish_compacted
from ..format.schema import (
    CODECS,
    MANIFEST,
    TENSORS,
    FlushRange,
    chunk_folder,
    flush_range_of,
    folder_of,
    index_folder,
    is_chunk_of,
    range_path,
)
from ..mode import check_not_negative
from ..progress import progress_bar
from ..snapshot.index_files import IndexFile, WorkerIndex, read_summaries
from ..snapshot.manifest import write_manifest
from ..snapshot.snapshot import Snapshot, run_info, take
from ..snapshot.workers import read_workers
from ..storage.open import ByteRange, Storage, open_storage

DELETE_OLDER_THAN_SECONDS = 3600.0
"""The default. After an hour, no reader needs superseded files, and each writer has named the files that it wrote."""
_BLOCK = 64
"""While the job runs, this many flushes become one file, and this many of those the next."""
_SHARE = 8
"""The number of parts into which a range is divided, repeatedly, while it is too large."""
_ROWS = 1 << 20
"""The most rows of a file, because rows are sorted in memory."""


@dataclass(frozen=True)
class Compaction:
    """The result of `compact`.

    Attributes:
        files_before: Number of index files before, without superseded ones.
        bytes_before: Size in bytes of the readable ones.
        files_after: Number of index files after, without superseded ones.
        bytes_after: Size in bytes of the readable ones.
        chunks_merged: Number of files of raw values that were merged.
        chunks_made: Number of files that hold these values now.
        deleted_files: Number of superseded files that were deleted: index files and raw values.
        superseded_files: Number of superseded files that are too young to be deleted: index files and raw values.
        superseded_bytes: Their size in bytes.
        deletable_at: The time in seconds since 1970 when `compact` can delete all of them; None if there are none.
        damaged: Errors by the path of the file that cannot be read. These files were not changed.
    """

    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int
    chunks_merged: int = 0
    chunks_made: int = 0
    deleted_files: int = 0
    superseded_files: int = 0
    superseded_bytes: int = 0
    deletable_at: float | None = None
    damaged: Mapping[str, FileError] = field(default_factory=dict)


def compact(
    path: str | os.PathLike[str],
    *,
    delete_older_than: float = DELETE_OLDER_THAN_SECONDS,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Compaction:
    """Merge the many small files of a run into few.

    Opening and querying the run, and reading a tensor at many steps, becomes faster. Compaction is safe while the run
    is written and read, and may be interrupted: a file is deleted only once another file with all of its content is
    `delete_older_than` seconds old. The next compaction deletes younger files, and completes an interrupted one. While
    the job runs, flushes are merged by 64, and by thousands of steps once those are over. After its end, all flushes
    are merged. Raw values in files of 64 MB and more are not merged.

    Args:
        path: Folder or URL of the run.
        delete_older_than: Seconds for which superseded files are kept for readers; 0 for a run that nobody reads.
        storage_options: Options of fsspec for a URL.
        progress: Whether to show a progress bar, if tqdm is installed.

    Returns:
        Numbers and sizes of the files before and after, and of superseded files that are kept, and the damaged files.

    Raises:
        RunNotFound: Nothing is at `path`.
        NotARun: Something else is at `path`.
        MissingCollectionFiles: No worker has begun to save.
        UnknownFormat: A later release wrote the run.
        StorageError: The file system or the object store refused an operation.
        ConfigurationError: `delete_older_than` is negative.
    """
    check_not_negative("delete_older_than", delete_older_than)
    storage = open_storage(path, storage_options)
    codec = run_info(storage).codec
    if codec not in CODECS:
        raise UnknownFormat(
            storage.url,
            f"its run.json names the codec {codec!r}, with which this release cannot write; known codecs: "
            f"{', '.join(CODECS)}. Upgrade tensortrial, or repair run.json",
        )
    return _Compactor(storage, codec, delete_older_than, progress).run()


_Superseded = list[tuple[IndexFile, list[str]]]
"""Compacted files, each with the paths of the index files that it supersedes."""


class _Compactor:
    def __init__(self, storage: Storage, codec: str, delete_older_than: float, progress: bool) -> None:
        self._storage = storage
        self._codec = codec
        self._delete_older_than = delete_older_than
        self._progress = progress
        self._chunks_merged = self._chunks_made = self._deleted = 0
        self._sizes: dict[str, int] = {}
        """The sizes of all index files that could be read, in bytes."""
        self._workers = read_workers(storage)
        self._names = [info.worker for info in self._workers.infos]
        self._damaged: dict[str, FileError] = dict(self._workers.damaged)
        self._indexes: dict[str, WorkerIndex] = {}
        """By worker, as they were listed last."""

    def run(self) -> Compaction:
        before = _paths(map(self._index, self._names))
        with progress_bar(len(before), self._progress, "compact", "file") as advance:
            for worker in self._names:
                _, files = self._read(worker)
                while not self._compact_worker(worker, files):
                    _, files = self._read(worker)
                advance(len(files))
        young = self._delete_superseded()
        write_manifest(self._storage)
        after = _paths(self._read(worker)[0] for worker in self._names)
        weight = [sum(self._sizes.get(path, 0) for path in paths) for paths in (before, after)]
        return Compaction(
            len(before),
            weight[0],
            len(after),
            weight[1],
            self._chunks_merged,
            self._chunks_made,
            self._deleted,
            *self._kept(young),
            self._damaged,
        )

    def _index(self, worker: str) -> WorkerIndex:
        """Return the index of a worker as it is now, without files that were found damaged."""
        folder = f"{index_folder(worker)}/"
        damaged = {path: error for path, error in self._damaged.items() if path.startswith(folder)}
        known = {worker: self._indexes.get(worker, WorkerIndex()).without(damaged)}
        since = Snapshot(None, workers=self._workers, index=known)
        index = take(self._storage, since=since, workers=[worker], is_full=True).index[worker]
        for error in index.damaged.values():
            if isinstance(error, StorageError):
                raise error
        self._damaged |= index.damaged
        self._indexes[worker] = index
        return index

    def _read(self, worker: str) -> tuple[WorkerIndex, list[IndexFile]]:
        """Return the index of a worker, and its current files without damaged ones."""
        index = self._index(worker)
        found = list(read_summaries(self._storage, index.files))
        files = [IndexFile(worker, path, of, size=size) for path, size, of in found if isinstance(of, IndexSummary)]
        if len(files) < len(found):  # some were compacted after they were listed
            del self._indexes[worker]
            return self._read(worker)
        self._sizes.update((file.path, file.size) for file in files)
        return index, files

    # Files of many flushes.

    def _compact_worker(self, worker: str, files: Sequence[IndexFile]) -> bool:
        """Compact the files of a worker. Return False if one was found damaged: the others need another plan."""
        folders = _by_folder(files)
        newest = max((file.flushes.last for inside in folders.values() for file in inside), default=-1)
        for folder, inside in folders.items():
            # A worker does not write to a folder after it has begun a later one.
            complete = self._workers.job_ended or folder != max(folders)
            for piece in _without_damaged(inside, [path for path in self._damaged if folder_of(path) == folder]):
                groups = _fitting(piece, _SHARE**20) if complete else _finished(piece, newest)
                for group in groups:
                    if len(group) > 1 and not self._merge(worker, group):
                        return False
        return True

    def _merge(self, worker: str, group: Sequence[IndexFile]) -> bool:
        """Publish one file with the rows of the group. Return False if one of its files is damaged."""
        try:
            contents = self._storage.read_ranges([ByteRange(file.path, 0, file.size) for file in group])
            tables = [read_rows(file.path, data) for file, data in zip(group, contents, strict=True)]
            for file, table in zip(group, tables, strict=True):
                if table.num_rows != file.summary.rows:
                    raise CorruptFile(file.path, "its number of rows differs from that in its footer")
        except CorruptFile as exc:
            self._damaged[exc.path] = exc
            return False
        except FileNotFoundError:
            return True  # another process has compacted it
        chunks = self._merge_chunks(worker, group, pa.concat_tables(tables))
        if chunks is None:
            return True
        with suppress(AlreadyPublished):  # another process has just done the same
            self._publish(range_path(group[0].path, group[-1].path), group, chunks)
            self._chunks_merged += len(chunks.merged)
            self._chunks_made += len(chunks.new)
        return True

    def _publish(self, target: str, group: Sequence[IndexFile], chunks: MergedChunks) -> None:
        summary = replace(joined([file.summary for file in group]), chunks=chunks.chunks())
        # The manifest is updated, so that later readers do not begin with superseded files.
        self._storage.remove(MANIFEST)
        publish_compacted(self._storage, target, chunks.rows, summary, chunks.new)
        self._storage.sync(target)

    def _merge_chunks(self, worker: str, group: Sequence[IndexFile], rows: pa.Table) -> MergedChunks | None:
        """Merge the values of the group, except damaged chunks. Return None if another process has done so."""
        damaged_chunks: dict[str, FileError] = {}
        flushes = FlushRange(group[0].flushes.first, group[-1].flushes.last)
        while True:
            try:
                return merge_chunks(self._storage, rows, worker, flushes, self._codec, damaged_chunks)
            except (CorruptFile, MissingChunk) as exc:
                if exc.path in damaged_chunks:
                    raise
                # Another process may have merged the chunks meanwhile and deleted the old ones. A file with rows that
                # refer to deleted chunks must not supersede that process's file.
                index, _ = self._read(worker)
                if not all(index.holds(file.path) for file in group):
                    return None
                damaged_chunks[exc.path] = self._damaged[exc.path] = exc

    # Deletion of superseded files.

    def _delete_superseded(self) -> _Superseded:
        """Delete files that were superseded long enough ago, and return the others."""
        old, young, now = dict[str, _Superseded](), _Superseded(), time.time()
        for worker in self._names:
            old[worker] = []
            for wide, paths in _superseded(*self._read(worker)):
                # After a clock was set back, a file's age is treated as 0 seconds.
                is_old = max(0.0, now - _compacted_at(wide)) >= self._delete_older_than
                (old[worker] if is_old else young).append((wide, paths))
        if any(old.values()):
            self._storage.remove(MANIFEST)  # another compaction may have written a manifest that names these files
        count = sum(len(paths) for pairs in old.values() for _, paths in pairs)
        with progress_bar(count, self._progress, "delete", "file") as advance:
            for worker, pairs in old.items():
                merged, num_damaged = self._merged_chunks(worker), len(self._damaged)
                named = {chunk for file in self._read(worker)[1] for chunk in file.summary.chunks}
                # Files are deleted in the order of their flushes, so that a reader that finds its last known file
                # misses no later one.
                for wide, paths in pairs:
                    self._storage.sync(wide.path)
                    if len(self._damaged) == num_damaged:  # otherwise `named` may be incomplete
                        self._delete(worker, wide, paths, named)
                    advance(len(paths))
                if merged:
                    self._delete_unnamed(worker, merged)
        return young

    def _kept(self, young: _Superseded) -> tuple[int, int, float | None]:
        """Return the number of kept files, their size in bytes, and the time when all of them can be deleted."""
        if not young:
            return 0, 0, None
        index = {path for _, paths in young for path in paths}
        named = {chunk for worker in self._names for file in self._read(worker)[1] for chunk in file.summary.chunks}
        sizes = [
            file.nbytes
            for file in self._storage.walk()
            if file.path in index or (file.path not in named and _is_chunk_below(file.path, young))
        ]
        return len(sizes), sum(sizes), max(_compacted_at(wide) for wide, _ in young) + self._delete_older_than

    def _delete(self, worker: str, wide: IndexFile, paths: Sequence[str], named: set[str]) -> None:
        held = wide.summary.tensors()
        for path, size, summary in read_summaries(self._storage, paths):
            self._sizes[path] = size
            if isinstance(summary, IndexSummary) and summary.tensors() <= held:
                # Chunks are deleted before the file that names them, so that the next compaction can complete an
                # interrupted one.
                for chunk in summary.chunks:
                    if chunk not in named and is_chunk_of(chunk, worker):
                        self._storage.remove(chunk)
                        self._deleted += 1
                self._storage.remove(path)
                self._deleted += 1
            elif isinstance(summary, FileError):
                self._damaged[path] = summary

    def _merged_chunks(self, worker: str) -> list[str]:
        """Return the chunks that compactions have made for the worker."""
        return [
            f"{folder}/{name}"
            for mode in self._storage.list(TENSORS)
            for step in self._storage.list(f"{TENSORS}/{mode}")
            for folder in [chunk_folder(mode.removeprefix("mode="), step, worker)]
            for name in self._storage.list(folder)
            if flush_range_of_merged(name)
        ]

    def _delete_unnamed(self, worker: str, merged: Sequence[str]) -> None:
        """Delete the merged chunks of compactions that were killed before they published rows that name the chunks.

        `merged` must be listed before the rows are read. After one file has all flushes of a chunk, rows that name the
        chunk are no longer published, or superseded.
        """
        index, files = self._read(worker)
        named = {chunk for file in files for chunk in file.summary.chunks}
        for _, _, summary in read_summaries(self._storage, index.superseded):
            if not isinstance(summary, IndexSummary):
                return
            named.update(summary.chunks)
        wide = [file.flushes for file in files if file.flushes.first < file.flushes.last]
        for chunk in merged:
            flushes = flush_range_of_merged(chunk)
            assert flushes is not None
            if chunk not in named and any(each.supersedes(flushes) for each in wide):
                self._storage.remove(chunk)


def _paths(indexes: Iterable[WorkerIndex]) -> list[str]:
    """Return the paths of the index files that no other supersedes, without missing ones."""
    found = list[str]()
    for index in indexes:
        found += index.files
        found += (path for path, error in index.damaged.items() if not isinstance(error, MissingIndexFile))
    return found


def _compacted_at(file: IndexFile) -> float:
    return file.summary.compacted_at or 0.0


def _is_chunk_below(path: str, superseded: _Superseded) -> bool:
    """Return whether a file holds raw values of flushes whose index files are superseded."""
    flushes = flush_range_of(path) or flush_range_of_merged(path)
    return flushes is not None and any(
        is_chunk_of(path, wide.worker) and wide.flushes.supersedes(flushes) for wide, _ in superseded
    )


def _superseded(index: WorkerIndex, files: Sequence[IndexFile]) -> Iterator[tuple[IndexFile, list[str]]]:
    """Yield the compacted files of a worker with the files that they supersede, in the order of their flushes."""
    below = [(of, path) for path in index.superseded if (of := flush_range_of(path))]
    for folder, inside in _by_folder(files).items():
        for wide in inside:
            paths = [path for of, path in sorted(below) if folder_of(path) == folder and wide.flushes.supersedes(of)]
            if paths and wide.summary.compacted_at is not None:
                yield wide, paths


def _by_folder(files: Iterable[IndexFile]) -> dict[str, list[IndexFile]]:
    """Return the files of each folder by their flushes. Folders are in the order of steps."""
    numbered = sorted((folder_of(file.path), *file.flushes, file) for file in files)
    return {folder: [file for *_, file in inside] for folder, inside in groupby(numbered, itemgetter(0))}


def _without_damaged(files: Sequence[IndexFile], damaged: Sequence[str]) -> Iterator[list[IndexFile]]:
    """Yield sequences of files without a damaged one in between, whose flushes a merged file would seem to have."""
    holes = sorted(flushes for path in damaged if (flushes := flush_range_of(path)))
    piece: list[IndexFile] = []
    for file in files:
        before = piece[-1].flushes.last if piece else -1
        if any(bad.first <= file.flushes.last and bad.last > before for bad in holes):
            yield piece
            piece = []
        if not any(bad.first <= file.flushes.last and bad.last >= file.flushes.first for bad in holes):
            piece.append(file)
    yield piece


# Two compactions of the same files, concurrent or successive, must never create two files that share only some flushes.
# So a range that is not a whole folder is a block that begins at a multiple of its size.


def _finished(files: Sequence[IndexFile], newest: int) -> Iterator[list[IndexFile]]:
    """Yield the largest complete blocks of flushes; `newest` is the last flush."""
    size = _BLOCK
    while size * _BLOCK <= newest + 1:
        size *= _BLOCK
    yield from _finished_blocks(files, newest, size)


def _finished_blocks(files: Sequence[IndexFile], newest: int, size: int) -> Iterator[list[IndexFile]]:
    for block, inside in _blocks(files, size):
        if (block + 1) * size <= newest + 1:
            yield from _fitting(inside, size)
        elif size > _BLOCK:
            yield from _finished_blocks(inside, newest, size // _BLOCK)


def _fitting(files: Sequence[IndexFile], size: int) -> Iterator[list[IndexFile]]:
    """Yield the files in parts of limited rows; `size` is the size of their block in flushes."""
    if sum(file.summary.rows for file in files) <= _ROWS:
        yield list(files)
    elif size > _SHARE:
        for _, inside in _blocks(files, size // _SHARE):
            yield from _fitting(inside, size // _SHARE)


def _blocks(files: Sequence[IndexFile], size: int) -> Iterator[tuple[int, list[IndexFile]]]:
    """Yield the files in each block of flushes, without files that extend beyond its end."""
    whole = [file for file in files if file.flushes.first // size == file.flushes.last // size]
    for block, inside in groupby(whole, lambda file: file.flushes.first // size):
        yield block, list(inside)
