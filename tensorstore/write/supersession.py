"""Sets aside what was saved after a step, when a job goes back to a checkpoint.

In each folder of the index that has later steps, one file with the rows before the step supersedes all others, as a
compacted file does. So every reader passes over the later rows, and nothing is deleted: a compaction deletes no file of
which the file that supersedes it lacks a row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import AlreadyPublished, RunTakenOver, StorageError, TensorTrialError
from ..format.flush_range import current_files, flush_range_of, folder_of
from ..format.index_footer import joined
from ..format.index_reader import read_rows
from ..format.index_types import IndexSummary
from ..format.index_writer import publish_compacted
from ..snapshot.index_files import list_index, read_summaries
from ..storage.open import Storage

logger = logging.getLogger(__name__)

_ATTEMPTS = 5
"""The number of times that files may be compacted between listing and reading, or that the storage may fail."""


class _File(NamedTuple):
    path: str
    summary: IndexSummary

    def is_followed_by(self, later: _File) -> bool:
        """Return whether no file is missing between this one and a later one of the same folder."""
        named, own = flush_range_of(later.summary.previous), flush_range_of(self.path)
        return named is None or own is None or named.last <= own.last


def set_aside_after(
    storage: Storage, worker: str, paths: Sequence[str], step: int, flush: int, check: Callable[[], None] = lambda: None
) -> None:
    """Supersede what a worker saved at a global step and after it.

    Where a file is damaged or missing, which the new file would hide, the folder stays as it is. That is logged.

    Args:
        storage: The run.
        worker: The worker, which writes no more of what is set aside.
        paths: Its index files.
        step: The global step.
        flush: A number of a flush that is later than all of these files, and that no file has.
        check: Raises an error if another process has taken the run over, whose files a new file would supersede.
    """
    has_later_steps = False
    # In this order: a reader that follows the run lists its last folder only, and reads all again if steps are gone.
    for folder in sorted({folder_of(path) for path in paths}):
        is_done = False
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                files = _files([path for path in paths if folder_of(path) == folder], storage)
                is_here = any(each.global_step >= step for file in files for each in file.summary.steps)
                has_later_steps |= is_here
                if is_here or (has_later_steps and not is_done):
                    _set_aside_in(storage, files, step, flush, check)
                break
            except (FileNotFoundError, AlreadyPublished) as exc:
                # Compacted meanwhile, or set aside by another worker of the job, perhaps from a later step on.
                is_done = isinstance(exc, AlreadyPublished)
                flush += is_done
                paths = [path for path in list_index(storage, worker) if _is_before(path, flush)]
            except RunTakenOver:
                raise
            except TensorTrialError as exc:
                if isinstance(exc, StorageError) and attempt < _ATTEMPTS:
                    continue  # the cause may pass, and what stays is there twice
                logger.warning(
                    "run %s: what %s saved from step %d on stays as it is in %s, until it is saved again: %s",
                    storage.url,
                    worker,
                    step,
                    folder,
                    exc,
                )
                break


def _is_before(path: str, flush: int) -> bool:
    flushes = flush_range_of(path)
    return flushes is not None and flushes.last < flush


def _files(paths: Sequence[str], storage: Storage) -> list[_File]:
    return [_File(path, _readable(summary)) for path, _, summary in read_summaries(storage, current_files(paths))]


def _set_aside_in(storage: Storage, files: Sequence[_File], step: int, flush: int, check: Callable[[], None]) -> None:
    if not all(before.is_followed_by(after) for before, after in pairwise(files)):
        raise TensorTrialError("an index file is missing")
    rows = pa.concat_tables([read_rows(file.path, storage.read(file.path)) for file in files])
    kept = rows.filter(pc.less(rows["global_step"], step))
    summary = joined([file.summary for file in files])
    summary = replace(
        summary,
        rows=len(kept),
        steps=[each for each in summary.steps if each.global_step < step],
        chunks=kept["chunk"].unique().drop_null().to_pylist(),
    )
    first = flush_range_of(files[0].path)
    assert first is not None
    check()
    path = f"{folder_of(files[0].path)}/{first.first:08d}-{flush:08d}.parquet"
    publish_compacted(storage, path, kept, summary)
    storage.sync(path)


def _readable(summary: IndexSummary | Exception) -> IndexSummary:
    if isinstance(summary, Exception):
        raise summary
    return summary
