"""Follows the index files of a run: finds new ones, those that superseded others, and damaged ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from ..errors import FileError, MissingIndexFile, StorageError
from ..storage.open import FileSource, Storage
from .flush_range import FlushRange, current_files, flush_range_of, folder_of
from .index_footer import read_summary
from .index_types import IndexSummary
from .schema import index_folder

logger = logging.getLogger(__name__)

# Enough for the footer of most flushes; a longer one costs a second read.
_TAIL_BYTES = 64 << 10
_SUFFIX = ".parquet"
# How many times files may be compacted between listing and reading.
_ATTEMPTS = 5
# After so long a file that cannot be read is taken for lost.
_AWAITED_SECONDS = 60.0


def list_index(storage: FileSource, worker: str, after: str = "") -> list[str]:
    """Return the paths of the worker's index files after the path `after`, superseded ones included.

    A listing does not show the folder at one moment: flushes that are compacted meanwhile may appear neither in their
    old files nor in the new one. Where numbers are missing, the folder is listed again, which then shows the new file.
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
    for path, tail in zip(paths, storage.read_tails(paths, _TAIL_BYTES), strict=True):
        try:
            if isinstance(tail, Exception):
                raise tail
            summary = read_summary(path, *tail)
            if isinstance(summary, int):
                summary = read_summary(path, *storage.read_tail(path, summary))
            assert isinstance(summary, IndexSummary)
            yield path, tail[1], summary
        except (FileError, FileNotFoundError) as exc:
            yield path, 0, exc


class NewFile(NamedTuple):
    """An index file that a reader has not seen before."""

    worker: str
    path: str
    summary: IndexSummary
    replaces: list[str]
    """The files seen before that it supersedes: they may be deleted."""


def without_replaced(files: Iterable[NewFile]) -> list[NewFile]:
    """Return the files that none of the others replaces. Each replaces what those that it has replaced did, too."""
    left: dict[str, NewFile] = {}
    for file in files:
        earlier = [left.pop(path) for path in file.replaces if path in left]
        replaces = [*file.replaces, *chain.from_iterable(each.replaces for each in earlier)]
        left[file.path] = file._replace(replaces=replaces)
    return list(left.values())


class IndexFiles:
    """The index files that one reader has seen."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._source: FileSource = storage
        self._last: dict[str, str] = {}
        self._held: dict[str, dict[str, FlushRange | None]] = {}
        """By folder: the files whose rows the reader has, and their flushes."""
        self._unread: set[str] = set()
        self._failed_at: dict[str, float] = {}
        """The time at which a file could not be read for the first time, for a cause that may pass."""
        self._new: list[NewFile] = []
        self._named: dict[str, dict[str, str]] = {}
        """By worker: index files that the reader has not seen, with the file that names each of them."""
        self._missing: set[str] = set()
        self.damaged: dict[str, FileError] = {}

    def find_new(self, worker: str, rescan: bool = False, source: FileSource | None = None) -> list[NewFile]:
        """Return the files of a worker that are new since the last call.

        `rescan` also finds files that superseded others in the past of the run. Otherwise these are noticed once the
        last file that is known has been deleted. The files are listed and read in the `source`, the run itself if None.
        """
        self._source = source or self._storage
        missing: dict[str, str] = {}
        gone: set[str] = set()
        for _ in range(_ATTEMPTS):
            before = missing
            gone = self._take_new(worker, rescan, gone)
            missing = self._find_missing(worker)
            if missing and missing == before:
                # In two listings: it is not being compacted.
                self._set_aside_missing(missing)
            elif not missing and not gone:
                break
            rescan = True
        if gone:
            raise StorageError(index_folder(worker), "its files were compacted while they were read; read them again")
        # Files that were read before a listing failed are returned once one succeeds.
        found, self._new = without_replaced(self._new), []
        return found

    def expect(self, worker: str, path: str, by: str) -> None:
        """Expect an index file of a worker that the file `by` names. `find_new` sets it aside if it is missing."""
        if not self._knows(path):
            self._named.setdefault(worker, {})[path] = by

    def _find_missing(self, worker: str) -> dict[str, str]:
        """Return the index files of a worker that others name, and that are in no file which was listed."""
        missing = {path: by for path, by in self._named.pop(worker, {}).items() if not self._knows(path)}
        if missing:
            self._named[worker] = missing
        return missing

    def _knows(self, path: str) -> bool:
        """Return whether a file with the last flush of `path` was listed: that one, or one that supersedes it."""
        held = self._held.get(folder_of(path), {})
        if path in held or path in self.damaged:
            return True
        flushes = flush_range_of(path)
        assert flushes is not None
        last = FlushRange(flushes.last, flushes.last)
        damaged = (flush_range_of(bad) for bad in self.damaged if folder_of(bad) == folder_of(path))
        return any(of is not None and of.supersedes(last) for of in (*held.values(), *damaged))

    def _set_aside_missing(self, missing: Mapping[str, str]) -> None:
        for path, by in missing.items():
            # It may be restored: it is looked for again at each refresh.
            self._unread.add(path)
            self._missing.add(path)
            self.set_aside(path, MissingIndexFile(path, by))

    def _take_new(self, worker: str, rescan: bool, gone_before: set[str]) -> set[str]:
        """Read what is new. Return the files that were deleted before they were read.

        Those are compacted, as a new listing shows; one of `gone_before`, which is listed again, is damaged.
        """
        listed = self._listed(worker, rescan)
        if listed == [self._last.get(worker)]:
            return set()
        gone: set[str] = set()
        tried: set[str] = set()
        # If a file turns out to be damaged, those that it supersedes are read instead.
        while fresh := self._fresh(listed, tried):
            tried.update(fresh)
            for path, _, summary in list(read_summaries(self._source, fresh)):
                if isinstance(summary, IndexSummary):
                    self._take(worker, path, summary)
                elif isinstance(summary, FileNotFoundError) and path not in self._unread | gone_before:
                    gone.add(path)
                else:
                    self._set_aside(path, summary)
        self._remember_last(worker, listed)
        return gone

    def _remember_last(self, worker: str, listed: list[str]) -> None:
        numbered = [path for path in listed if flush_range_of(path) and path not in self._missing]
        if numbered:
            self._last[worker] = current_files(numbered)[-1]

    def rescan(self) -> list[NewFile]:
        """Return the files that superseded others, in all folders."""
        return [file for worker in list(self._last) for file in self.find_new(worker, rescan=True)]

    def set_aside(self, path: str, error: FileError) -> None:
        """Remember that a file of the run is damaged, and log it once."""
        if path not in self.damaged:
            self.damaged[path] = error
            logger.warning("run %s: left out, the rest is readable: %s", self._storage.url, error)

    def is_awaited(self, path: str) -> bool:
        """Return whether a file could not be read for a cause that may pass, and not for long: it may be read yet."""
        return path in self._failed_at and time.monotonic() - self._failed_at[path] < _AWAITED_SECONDS

    def fail(self, path: str) -> None:
        """Remember that a file cannot be read now."""
        self._failed_at.setdefault(path, time.monotonic())

    def succeed(self, path: str) -> None:
        """Forget that a file could not be read."""
        if self._failed_at.pop(path, None) is not None:
            self.damaged.pop(path, None)

    def _listed(self, worker: str, rescan: bool) -> list[str]:
        last = self._last.get(worker, "")
        unread = [path for path in self._unread if path.startswith(f"{index_folder(worker)}/")]
        if not rescan and last:
            # From the last known file on, inclusive: if it is missing, it was compacted, and perhaps others after it.
            paths = list_index(self._source, worker, last.removesuffix(_SUFFIX))
            if last in paths:
                return unread + paths
        if last and self._is_as_known(worker):
            return [last]
        return list_index(self._source, worker)

    def _is_as_known(self, worker: str) -> bool:
        """Return whether the worker's files are exactly those whose rows the reader has."""
        prefix = f"{index_folder(worker)}/"
        known = [held for folder, held in self._held.items() if folder.startswith(prefix)]
        listed = self._source.list_after(index_folder(worker))
        if len(listed) != sum(map(len, known)):
            return False
        return all(path in self._held.get(folder_of(path), {}) for path in listed)

    def _fresh(self, listed: list[str], tried: set[str]) -> list[str]:
        usable = (path for path in listed if path not in self.damaged or self._may_be_tried(path, tried))
        return [path for path in current_files(usable) if path not in tried and not self._holds(path)]

    def _may_be_tried(self, path: str, tried: set[str]) -> bool:
        return path in self._unread and path not in tried

    def _holds(self, path: str) -> bool:
        held = self._held.get(folder_of(path), {})
        if path in held:
            return True
        flushes = flush_range_of(path)
        wider = (each for each in held.values() if each and each.first < each.last)
        return flushes is not None and any(each.supersedes(flushes) for each in wider)

    def _take(self, worker: str, path: str, summary: IndexSummary) -> None:
        held = self._held.setdefault(folder_of(path), {})
        flushes = flush_range_of(path)
        replaces = []
        if flushes is not None and flushes.first < flushes.last:
            replaces = [old for old, of in held.items() if of is not None and flushes.supersedes(of)]
            for old in replaces:
                del held[old]
            for bad in [bad for bad in self._unread if folder_of(bad) == folder_of(path)]:
                if (of := flush_range_of(bad)) is not None and flushes.supersedes(of):
                    self._read_after_all(bad)
        held[path] = flushes
        self._missing.discard(path)
        self._read_after_all(path)
        if summary.previous:
            self.expect(worker, summary.previous, path)
        self._new.append(NewFile(worker, path, summary, replaces))

    def _read_after_all(self, path: str) -> None:
        self.succeed(path)
        if path in self._unread:
            self._unread.discard(path)
            self.damaged.pop(path, None)

    def _set_aside(self, path: str, error: Exception) -> None:
        if isinstance(error, (StorageError, FileNotFoundError)):
            # The cause may pass: the file is read again at each refresh.
            self._unread.add(path)
            if path not in self._missing:
                self.fail(path)
        if not isinstance(error, FileError):
            error = StorageError(path, "it was listed, but is missing now")
        self.set_aside(path, error)


def _gaps(paths: Iterable[str], from_start: bool) -> Iterator[FlushRange]:
    """Yield the flush numbers that no file has, between the first file, or 0, and the last."""
    known = [flushes for path in current_files(paths) if (flushes := flush_range_of(path))]
    for before, after in pairwise([FlushRange(-1, -1), *known] if from_start else known):
        if after.first > before.last + 1:
            yield FlushRange(before.last + 1, after.first - 1)
