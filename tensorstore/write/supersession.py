"""Supersedes the steps after a given one, when a job goes back to a checkpoint.

In each folder of the index with later steps, one file with the earlier rows supersedes all others, as a compacted file
does. So every reader skips the later rows, and nothing is deleted: compaction keeps a file if the file that supersedes
it lacks one of its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import AlreadyPublished, MissingIndexFile, RunTakenOver, StorageError, TensorTrialError
from ..format.index_reader import read_rows
from ..format.index_types import IndexSummary, joined
from ..format.index_writer import publish_compacted
from ..format.schema import flush_range_of, folder_of
from ..snapshot.index_files import IndexFile, WorkerIndex, read_summaries
from ..snapshot.snapshot import take
from ..storage.open import Storage

logger = logging.getLogger(__name__)

_ATTEMPTS = 5
"""The number of times that files may be compacted between listing and reading, or that the storage may fail."""


def supersede_after(
    storage: Storage, worker: str, step: int, flush: int, check: Callable[[], None] = lambda: None
) -> None:
    """Supersede the steps of a worker from a global step on.

    A folder with a damaged or missing file, which the new file would hide, stays unchanged. That is logged.

    Args:
        storage: The run.
        worker: The worker, which writes none of the superseded steps any more.
        step: The global step.
        flush: An unused flush number. Files of later flushes stay.
        check: Raises an error if another process has taken the run over, whose files a new file would supersede.
    """
    has_later_steps = False
    # In this order: readers that follow the run list its last folder only, and read all again if steps are gone.
    index = take(storage, workers=[worker]).index[worker]
    for folder in sorted({folder_of(path) for path in [*index.files, *index.damaged]}):
        is_done = False
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if attempt > 1:
                    index = take(storage, workers=[worker]).index[worker]
                files = _files_before(storage, index, folder, flush)
                is_here = any(each.global_step >= step for file in files for each in file.summary.steps)
                has_later_steps |= is_here
                if files and (is_here or (has_later_steps and not is_done)):
                    _supersede_in(storage, files, step, flush, check)
                break
            except RunTakenOver:
                raise
            except (FileNotFoundError, TensorTrialError) as exc:
                is_done = isinstance(exc, AlreadyPublished)
                flush += is_done
                # Files were compacted meanwhile, or superseded by another worker, perhaps from a later step on.
                may_pass = is_done or isinstance(exc, FileNotFoundError | StorageError)
                if attempt < _ATTEMPTS and may_pass and not isinstance(exc, MissingIndexFile):
                    continue  # rows that stay are then there twice
                warning = "run %s: the steps of %s from %d on stay unchanged in %s, until they are saved again: %s"
                logger.warning(warning, storage.url, worker, step, folder, exc)
                break


def _files_before(storage: Storage, index: WorkerIndex, folder: str, flush: int) -> list[IndexFile]:
    """Return the files of a folder whose flushes all come before `flush`, in their order.

    Raises the error of one that is damaged or missing.
    """
    paths = [path for path in [*index.damaged, *index.files] if folder_of(path) == folder]
    before = [path for path in paths if (flushes := flush_range_of(path)) and flushes.last < flush]
    files = list[IndexFile]()
    for path, _, summary in read_summaries(storage, before):
        if not isinstance(summary, IndexSummary):
            raise index.damaged.get(path, summary)
        files.append(IndexFile("", path, summary))
    return sorted(files, key=lambda file: file.flushes)


def _supersede_in(
    storage: Storage, files: Sequence[IndexFile], step: int, flush: int, check: Callable[[], None]
) -> None:
    rows = pa.concat_tables([read_rows(file.path, storage.read(file.path)) for file in files])
    kept = rows.filter(pc.less(rows["global_step"], step))
    summary = joined([file.summary for file in files])
    summary = replace(
        summary,
        rows=len(kept),
        steps=[each for each in summary.steps if each.global_step < step],
        chunks=kept["chunk"].unique().drop_null().to_pylist(),
    )
    check()
    path = f"{folder_of(files[0].path)}/{files[0].flushes.first:08d}-{flush:08d}.parquet"
    publish_compacted(storage, path, kept, summary)
    storage.sync(path)
