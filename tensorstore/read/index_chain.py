"""Finds the index files that are missing in a listing, because each names the one before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..errors import MissingIndexFile
from ..format.flush_range import FlushRange, flush_range_of, folder_of
from ..format.index_log import read_summaries
from ..format.index_types import IndexSummary
from ..format.schema import end_path
from ..storage.open import Storage


def find_missing(
    storage: Storage, listed: Mapping[str, Sequence[str]], last_files: Mapping[str, str]
) -> dict[str, MissingIndexFile]:
    """Return the index files that others name and that were not listed, nor any that supersedes them.

    Args:
        storage: The run.
        listed: The index files by worker. Their footers are read only where numbers of flushes are missing.
        last_files: The last index file of each worker that has ended, as its end mark says.

    Returns:
        An error for each missing file, by its path.
    """
    missing: dict[str, MissingIndexFile] = {}
    for worker, paths in listed.items():
        named = dict(_named_before_gaps(storage, paths))
        if worker in last_files:
            named[last_files[worker]] = end_path(worker)
        ranges = [(folder_of(path), flushes) for path in paths if (flushes := flush_range_of(path))]
        for path, by in named.items():
            if not _is_held(path, ranges):
                missing[path] = MissingIndexFile(path, f"it is missing, and with it its steps: {by} names it")
    return missing


def _named_before_gaps(storage: Storage, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the index files that are named by those before whose flushes others are missing, with what names them."""
    after_gaps, end = [], 0
    for flushes, path in sorted((flushes, path) for path in paths if (flushes := flush_range_of(path))):
        if flushes.first > end:
            after_gaps.append(path)
        end = max(end, flushes.last + 1)
    for path, _, summary in read_summaries(storage, after_gaps):
        if isinstance(summary, IndexSummary) and summary.previous:
            yield summary.previous, path


def _is_held(path: str, ranges: Iterable[tuple[str, FlushRange]]) -> bool:
    flushes = flush_range_of(path)
    assert flushes is not None
    last = FlushRange(flushes.last, flushes.last)
    return any(folder == folder_of(path) and of.supersedes(last) for folder, of in ranges)
