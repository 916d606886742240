"""The index files of a worker: the ones that count, the superseded ones, and the damaged or missing ones."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import NamedTuple

from ..errors import FileError, MissingIndexFile, StorageError
from ..forking import lazy
from ..format.checksum import read_ends
from ..format.index_types import IndexSummary, read_summary
from ..format.schema import FlushRange, current_files, end_path, flush_range_of, flushes_in, folder_of, index_folder
from ..storage.base import FileSource

_SUFFIX = ".parquet"
_LOST = float("-inf")


def list_index(storage: FileSource, worker: str, after: str = "") -> list[str]:
    """Return the paths of the worker's index files after the path `after`, superseded ones included.

    A listing takes time: flushes that are compacted meanwhile may appear neither in their old files nor in the new one.
    If numbers are missing, the folder is listed again, which then shows the new file.
    """
    folder = index_folder(worker)
    seen: set[FlushRange] = set()
    while True:
        names = storage.list_after(folder, after.removeprefix(f"{folder}/"))
        paths = [path for path in names if path.endswith(_SUFFIX)]
        if after and len(paths) < 2:
            return paths
        gaps = set(_gaps(paths, from_start=not after))
        if gaps <= seen:
            return paths
        seen = gaps


def read_summaries(storage: FileSource, paths: Sequence[str]) -> Iterator[tuple[str, int, IndexSummary | Exception]]:
    """Yield each index file with its size in bytes and its summary, or the error that prevents reading it.

    Raises:
        UnknownFormat: A later release wrote a file.
    """
    for path, end in zip(paths, read_ends(storage, paths), strict=True):
        try:
            if isinstance(end, Exception):
                raise end
            yield path, end[1], read_summary(path, *end)
        except (FileError, FileNotFoundError) as exc:
            yield path, 0, exc


class IndexFile(NamedTuple):
    """An index file with the summary in its footer."""

    worker: str
    path: str
    summary: IndexSummary
    replaces: Sequence[str] = ()
    """The files known before that it supersedes: they may be deleted."""
    size: int = 0
    """In bytes."""

    @property
    def flushes(self) -> FlushRange:
        """The flushes that the file holds."""
        return flushes_in(self.path)


def without_replaced(files: Iterable[IndexFile]) -> list[IndexFile]:
    """Return the files that no other one replaces. `replaces` of a returned file includes indirectly replaced files."""
    left: dict[str, IndexFile] = {}
    for file in files:
        earlier = [left.pop(path) for path in file.replaces if path in left]
        replaces = [*file.replaces, *chain.from_iterable(each.replaces for each in earlier)]
        left[file.path] = file._replace(replaces=replaces)
    return list(left.values())


@dataclass(frozen=True, eq=False)
class WorkerIndex:
    """The index files of one worker, by the listings so far. It never changes."""

    last: str = ""
    """The last file, at which the next listing begins."""
    held: Mapping[str, Mapping[str, FlushRange]] = field(default_factory=dict)
    """By folder: the files that count and could be read, with their flushes."""
    damaged: Mapping[str, FileError] = field(default_factory=dict)
    """The errors of files that cannot be read or are missing, by their paths."""
    unread: Mapping[str, float] = field(default_factory=dict)
    """The damaged files that are tried again, each with the time of its first failure."""
    superseded: Sequence[str] = ()
    """Files that others supersede and that are not deleted, as of the last full listing."""

    def holds(self, path: str) -> bool:
        """Return whether a file counts and could be read."""
        return path in self.held.get(folder_of(path), ())

    def without(self, damaged: Mapping[str, FileError]) -> WorkerIndex:
        """Return the index without files that were found damaged. The next listing counts the files they superseded."""
        held = {of: {path: files[path] for path in files if path not in damaged} for of, files in self.held.items()}
        return replace(self, held=held, damaged={**self.damaged, **damaged})

    @lazy
    def files(self) -> list[str]:
        """The paths of the files that count and could be read."""
        return list(chain.from_iterable(self.held.values()))


def read_index(
    source: FileSource, worker: str, since: WorkerIndex | None = None, *, last: str = "", is_full: bool = False
) -> tuple[WorkerIndex, list[IndexFile]]:
    """Return the present index of a worker, and its new files.

    Args:
        source: The storage, or a manifest, that lists and reads the files.
        worker: The worker.
        since: The index that is known. It is returned itself if nothing is new.
        last: An index file that the worker's end mark names.
        is_full: List all files, to find those that superseded earlier ones. Otherwise they are found only once the last
            known file has been deleted.

    Raises:
        StorageError: The storage refused to list the files.
        UnknownFormat: A later release wrote a file.
    """
    since, listed = since or WorkerIndex(), None
    if since.last and not is_full:
        # From the last known file on, inclusive: if it is missing, it was compacted, and perhaps others after it.
        listed = list_index(source, worker, since.last.removesuffix(_SUFFIX))
        if listed == [since.last] and not since.unread and (not last or since.holds(last)):
            return since, []
    reading = _Reading(source, worker, since, listed)
    if last:
        reading.expect(last, end_path(worker))
    missing = set[str]()
    # Files that are missing were compacted after they were listed, unless they are missing after two listings.
    while found := reading.read(is_full, missing):
        missing, is_full = missing | found, True
    return reading.result()


class _Reading:
    """The index of a worker while it is read."""

    def __init__(self, source: FileSource, worker: str, since: WorkerIndex, listed: list[str] | None) -> None:
        """`listed` are the files from the last known one on, by a listing that was not of all."""
        self._source, self._worker, self._since, self._new = source, worker, since, listed
        self._last, self._superseded = since.last, since.superseded
        self._held, self._damaged, self._unread = dict(since.held), dict(since.damaged), dict(since.unread)
        self._copied = dict[str, dict[str, FlushRange]]()
        """The folders of `held` that have changed."""
        self._found: list[IndexFile] = []
        self._named: dict[str, str] = {}
        """Index files that no listing has shown yet, each with the file that names it."""

    def result(self) -> tuple[WorkerIndex, list[IndexFile]]:
        """Return the index as it is now, and the files that were not known before."""
        new = WorkerIndex(self._last, self._held, self._damaged, self._unread, self._superseded)
        compared = "last", "damaged", "unread", "superseded"
        is_new = self._found or any(getattr(new, name) != getattr(self._since, name) for name in compared)
        return (new if is_new else self._since), without_replaced(self._found)

    def expect(self, path: str, by: str) -> None:
        """Expect an index file that the file `by` names. It is excluded if it is missing."""
        if not self._knows(path):
            self._named[path] = by

    def _knows(self, path: str) -> bool:
        """Return whether a file with the last flush of `path` was listed: `path`, or a file that supersedes it."""
        held = self._held.get(folder_of(path), {})
        if path in held or path in self._damaged:
            return True
        number = flushes_in(path).last
        last = FlushRange(number, number)
        damaged = (flush_range_of(bad) for bad in self._damaged if folder_of(bad) == folder_of(path))
        return any(of is not None and of.supersedes(last) for of in (*held.values(), *damaged))

    def read(self, is_full: bool, missing: Collection[str]) -> set[str]:
        """Read the new files. Return those that are missing, although they were listed or another file names them.

        Compaction deletes files, and a new listing shows the file that replaces them. If a file of `missing` is
        listed again but cannot be found, it is recorded as damaged.
        """
        listed, is_full = self._listed(is_full)
        if listed == [self._last] and not (is_full or self._named):
            return set()
        gone, tried = set[str](), set[str]()
        # If a file turns out to be damaged, those that it supersedes are read instead.
        while fresh := self._fresh(listed, tried):
            tried.update(fresh)
            for path, size, summary in list(read_summaries(self._source, fresh)):
                if isinstance(summary, IndexSummary):
                    self._take(path, size, summary)
                elif isinstance(summary, FileNotFoundError) and path not in missing and path not in self._unread:
                    gone.add(path)
                else:
                    self._exclude(path, summary)
        numbered = [path for path in listed if flush_range_of(path) and self._unread.get(path) != _LOST]
        if numbered:
            self._last = current_files(numbered)[-1]
        if is_full:
            held = set(chain.from_iterable(self._held.values()))
            left = (path for path in listed if path not in self._damaged and path not in held)
            self._superseded = tuple(sorted({*left} - gone))
        for path, by in self._named.items():
            if path in missing and not self._knows(path):
                # It may be restored: each listing looks for it again, and nothing waits for it.
                self._unread[path] = _LOST
                self._damaged.setdefault(path, MissingIndexFile(path, by))
        return gone | {path for path in self._named if not self._knows(path)}

    def _listed(self, is_full: bool) -> tuple[list[str], bool]:
        """Return the listed files, and True if these are all files. Otherwise they begin at the last known one."""
        if self._new is not None and not is_full and self._last in self._new:
            return [*self._unread, *self._new], False
        return list_index(self._source, self._worker), True

    def _fresh(self, listed: list[str], tried: set[str]) -> list[str]:
        usable = (path for path in listed if path not in self._damaged or (path in self._unread and path not in tried))
        return [path for path in current_files(usable) if path not in tried and not self._holds(path)]

    def _holds(self, path: str) -> bool:
        """Return whether the rows of a file are known: the file counts, or a file that supersedes it does."""
        flushes, held = flush_range_of(path), self._held.get(folder_of(path), {})
        wider = (each for each in held.values() if each.first < each.last)
        return path in held or (flushes is not None and any(each.supersedes(flushes) for each in wider))

    def _take(self, path: str, size: int, summary: IndexSummary) -> None:
        folder = folder_of(path)
        if folder not in self._copied:
            self._held[folder] = self._copied[folder] = dict(self._held.get(folder, {}))
        held, flushes, replaces = self._copied[folder], flushes_in(path), list[str]()
        if flushes.first < flushes.last:
            replaces = [old for old, of in held.items() if flushes.supersedes(of)]
            for old in replaces:
                del held[old]
            for bad in [bad for bad in self._unread if folder_of(bad) == folder]:
                if (of := flush_range_of(bad)) is not None and flushes.supersedes(of):
                    self._forget(bad)
        held[path] = flushes
        self._forget(path)
        if summary.previous:
            self.expect(summary.previous, path)
        self._found.append(IndexFile(self._worker, path, summary, replaces, size))

    def _forget(self, path: str) -> None:
        """Forget that a file could not be read."""
        if self._unread.pop(path, None) is not None:
            self._damaged.pop(path, None)

    def _exclude(self, path: str, error: Exception) -> None:
        if isinstance(error, (StorageError, FileNotFoundError)):
            # The cause may pass: each listing tries the file again.
            self._unread.setdefault(path, time.monotonic())
        if not isinstance(error, FileError):
            error = StorageError(path, "it was listed, but is missing now")
        self._damaged.setdefault(path, error)


def _gaps(paths: Iterable[str], from_start: bool) -> Iterator[FlushRange]:
    """Yield the missing flush numbers between the first file, or 0, and the last file."""
    known = [flushes for path in current_files(paths) if (flushes := flush_range_of(path))]
    for before, after in pairwise([FlushRange(-1, -1), *known] if from_start else known):
        if after.first > before.last + 1:
            yield FlushRange(before.last + 1, after.first - 1)
