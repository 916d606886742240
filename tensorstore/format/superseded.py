"""The index files that others supersede without holding all of their rows: a job went back to an earlier step."""

from __future__ import annotations

from urllib.parse import unquote

from ..storage.open import Storage
from .flush_range import current_files, flush_range_of
from .index_log import list_index, read_summaries
from .index_types import IndexSummary
from .schema import INDEX

_WORKER = "worker="


def superseded_files(storage: Storage) -> list[str]:
    """Return the paths of the superseded index files of a run that hold rows which no other file returned here holds.

    Some of their rows may be in the files that supersede them. Files that cannot be read are left out.
    """
    workers = (unquote(name.removeprefix(_WORKER)) for name in storage.list(INDEX) if name.startswith(_WORKER))
    return [path for worker in workers for path in _of_worker(storage, worker)]


def _of_worker(storage: Storage, worker: str) -> list[str]:
    listed = list_index(storage, worker)
    current = set(current_files(listed))
    # What a compacted file holds is not returned again with the files that it was made of.
    rest = sorted((path for path in listed if path not in current), key=_width, reverse=True)
    if not rest:
        return []
    held = set()
    for _, _, summary in read_summaries(storage, sorted(current)):
        if isinstance(summary, IndexSummary):
            held |= summary.tensors()
    found = []
    for path, _, summary in read_summaries(storage, rest):
        if isinstance(summary, IndexSummary) and not summary.tensors() <= held:
            held |= summary.tensors()
            found.append(path)
    return found


def _width(path: str) -> int:
    flushes = flush_range_of(path)
    return 0 if flushes is None else flushes.last - flushes.first
