"""Verifies a whole run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...dtypes import Array
from ...errors import FileError, StorageError
from ...format.index_types import IndexSummary
from ...format.schema import INDEX, SYSTEM, TENSORS, collections_path
from ...progress import progress_bar
from ...snapshot.index_files import IndexFile, read_index, read_summaries
from ...snapshot.workers import Workers, read_workers
from ...storage.open import Storage, StoredFile
from .chunks import check_chunk
from .documents import check_document, is_document, read_lost
from .index import check_index_file, rows_of
from .report import Findings, Unfinished, Unnamed, Verification

_TEMPORARY = re.compile(r"(.*/)?\.[^/]+\.[0-9a-f]{16}\.tmp", re.DOTALL)
_INDEX_FILE = re.compile(rf"{INDEX}/worker=[^/]+/step=\d+/[^/]+\.parquet")
_CHUNK = re.compile(rf"{TENSORS}/mode=[^/]+/step=\d+/worker=[^/]+/[^/]+\.parquet")
_COMPACTIONS = 5
"""The number of times that files may be compacted while a worker's files are read."""


def verify_run(storage: Storage, progress: bool = False) -> Verification:
    """Read every byte of a run, and return what is damaged, unfinished or not needed.

    The run may be written and compacted meanwhile. Memory is bounded by the largest index file, and by the largest
    value that is damaged, compressed or has several parts.

    Args:
        storage: The folder of the run.
        progress: Whether to show a progress bar, if tqdm is installed.

    Raises:
        StorageError: The folder cannot be listed.
        UnknownFormat: A later release wrote a file.
    """
    # Listed before the index is read: a chunk that is published later may be named later.
    # System metrics are a run of their own.
    files = {file.path: file for file in storage.walk() if not file.path.startswith(f"{SYSTEM}/")}
    with progress_bar(sum(file.nbytes for file in files.values()), progress, "verify", "B") as advance:
        return _Verifier(storage, files, advance).run()


class _Verifier:
    def __init__(self, storage: Storage, files: Mapping[str, StoredFile], advance: Callable[[float], object]) -> None:
        self._storage, self._files = storage, files
        self._findings = Findings(advance)
        self._workers = Workers()
        self._steps: dict[str, list[Array]] = {}
        self._named: set[str] = set()
        """Chunks that index files name."""
        self._superseded: list[str] = []

    def run(self) -> Verification:
        findings = self._findings
        for file in self._files.values():
            if file.is_link:
                findings.damaged(file.path, "it is a symbolic link, through which nothing in a run is read")
            elif is_document(file.path):
                check_document(self._storage, file, findings)
        self._workers = read_workers(self._storage)
        for path, error in self._workers.damaged.items():
            findings.damaged(path, error)
        self._check_claims()
        for info in self._workers.infos:
            self._check_worker(info.worker)
        lost = read_lost(self._storage)
        damage = findings.damage()
        return Verification(
            self._storage.url,
            *findings.totals(),
            damaged=tuple(each for each in damage if each.path not in lost),
            lost=tuple(each for each in damage if each.path in lost),
            unfinished=tuple(self._unfinished()),
            superseded=tuple(sorted(self._superseded)),
            unnamed=tuple(self._unnamed()),
        )

    def _check_claims(self) -> None:
        """Find workers whose claim is missing: without it none of their steps is read."""
        claimed = {info.worker for info in self._workers.infos}
        found = {_worker_of(path) or "" for path in self._files if _INDEX_FILE.fullmatch(path)}
        for worker in sorted(found - claimed):
            path = collections_path(worker)
            if not self._findings.is_damaged(path):
                self._findings.damaged(path, f"it is missing, and without it no step of {worker} is read", worker)

    # One worker.

    def _check_worker(self, worker: str) -> None:
        index, found = read_index(self._storage, worker, last=self._workers.last_index_file(worker))
        for _ in range(_COMPACTIONS):
            gone = [file for file in found if not self._check_file(file)]
            if not gone:
                break
            # What is gone has been compacted since it was listed, or is lost.
            index, found = read_index(self._storage, worker, index, is_full=True)
            replaced = {path for file in found for path in file.replaces}
            self._findings.forget(replaced)
            for file in gone:
                if file.path not in replaced:
                    self._check_file(file, is_final=True)
        for path, error in index.damaged.items():
            self._findings.damaged(path, error, worker)
        self._superseded += index.superseded
        for _, _, summary in read_summaries(self._storage, index.superseded):
            if isinstance(summary, IndexSummary):
                self._named.update(summary.chunks)

    def _check_file(self, file: IndexFile, is_final: bool = False) -> bool:
        """Verify an index file and its values. Return False if one of its files is missing, unless `is_final`."""
        findings = self._findings
        try:
            rows = check_index_file(self._storage, file, findings)
        except FileNotFoundError as exc:
            if not is_final:
                return False
            findings.damaged(file.path, exc, file.worker)
            return True
        except StorageError as exc:
            findings.damaged(file.path, exc, file.worker)
            return True
        self._named.update(file.summary.chunks)
        if rows is None:
            return True
        self._steps.setdefault(file.worker, []).append(
            np.array([step.global_step for step in file.summary.steps], np.int64)
        )
        found = [self._check_chunk(chunk, rows, is_final) for chunk in sorted(file.summary.chunks)]
        return all(found)

    def _check_chunk(self, chunk: str, rows: pa.Table, is_final: bool) -> bool:
        """Verify the values of an index file in one chunk. Return False if it is missing, unless `is_final`."""
        of_chunk = rows.filter(pc.equal(rows["chunk"], chunk))
        try:
            # One that was published since the files were listed is not known to be small.
            file = self._files.get(chunk) or StoredFile(chunk, self._storage.size(chunk))
            check_chunk(self._storage, file, of_chunk, self._findings)
        except (FileError, FileNotFoundError) as exc:
            if isinstance(exc, FileNotFoundError) and not is_final:
                return False
            for row in rows_of(of_chunk):
                self._findings.value_damaged(row, exc)
        return True

    # What is not damaged.

    def _unfinished(self) -> Iterator[Unfinished]:
        workers = self._workers
        if not workers.job_ended:
            for info in workers.writing:
                yield Unfinished(info.worker, "it has no end mark: it still writes, or was killed")
            for worker in workers.not_begun:
                yield Unfinished(worker, "it has not begun to save")
        current = [info.worker for info in workers.infos if info.session == max(each.session for each in workers.infos)]
        saved = {worker: np.unique(np.concatenate(self._steps.get(worker, [_NOTHING]))) for worker in current}
        steps = np.unique(np.concatenate([_NOTHING, *saved.values()]))
        steps = steps[steps >= workers.session_start]
        for worker in current:
            missing = np.setdiff1d(steps, saved[worker], assume_unique=True)
            if len(missing):
                yield Unfinished(worker, "it did not save all that other workers saved", tuple(missing.tolist()))

    def _unnamed(self) -> Iterator[Unnamed]:
        findings = self._findings
        for path, file in sorted(self._files.items()):
            if path in self._named or findings.was_read(path) or findings.is_damaged(path):
                continue
            if _TEMPORARY.fullmatch(path):
                yield Unnamed(path, file.nbytes, "temporary", _worker_of(path))
            elif "/." in f"/{path}" or path in self._superseded or is_document(path) or _INDEX_FILE.fullmatch(path):
                continue
            elif _CHUNK.fullmatch(path):
                yield Unnamed(path, file.nbytes, "chunk", _worker_of(path))
            else:
                yield Unnamed(path, file.nbytes, "other")


_NOTHING = np.zeros(0, np.int64)


def _worker_of(path: str) -> str | None:
    """Return the worker that a folder of the path is named after."""
    found = re.search(r"(?:^|/)worker=([^/]+)/", path)
    return unquote(found[1]) if found else None
