"""Verifies a whole run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...dtypes import Array
from ...errors import FileError
from ...format.index_types import IndexSummary
from ...format.run_files import TEMPORARY
from ...format.schema import INDEX, SYSTEM, TENSORS, collections_path
from ...progress import progress_bar
from ...snapshot.index_files import read_summaries
from ...snapshot.snapshot import Snapshot, take
from ...storage.open import Storage, StoredFile
from .chunks import check_chunk
from .documents import check_document, is_document, read_lost
from .index import check_index_file, rows_of
from .report import Findings, Unfinished, Unnamed, Verification

_INDEX_FILE = re.compile(rf"{INDEX}/worker=[^/]+/step=\d+/[^/]+\.parquet")
_CHUNK = re.compile(rf"{TENSORS}/mode=[^/]+/step=\d+/worker=[^/]+/[^/]+\.parquet")


def verify_run(storage: Storage, progress: bool = False) -> Verification:
    """Read every byte of a run, and report its damaged, unfinished and unneeded parts.

    The run may be written and compacted meanwhile. Memory is bounded by the largest index file, and by the largest
    value that is damaged, compressed or has several parts.

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
        self._snapshot = Snapshot(None)
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
        self._snapshot = take(self._storage)
        for path, error in self._snapshot.workers.damaged.items():
            findings.damaged(path, error)
        self._check_claims()
        for worker in self._snapshot.index:
            self._check_worker(worker)
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
        """Find workers whose claim is missing: readers ignore their steps."""
        found = {_worker_of(path) or "" for path in self._files if _INDEX_FILE.fullmatch(path)}
        for worker in sorted(found - self._snapshot.index.keys()):
            path = collections_path(worker)
            self._findings.damaged(path, f"it is missing, and without it no step of {worker} is read", worker)

    # One worker.

    def _check_worker(self, worker: str) -> None:
        index, checked, missing = self._snapshot.index[worker], set[str](), set[str]()
        while left := [path for path in index.files if path not in checked]:
            checked.update(path for path in left if self._check_file(worker, path, path in missing))
            if gone := set(left) - checked:
                # These have been compacted since they were listed. What is missing after another listing is lost.
                missing |= gone
                index = take(self._storage, since=self._snapshot, workers=[worker], is_full=True).index[worker]
                self._findings.forget(path for path in [*checked, *gone] if not index.holds(path))
        for path, error in index.damaged.items():
            self._findings.damaged(path, error, worker)
        self._superseded += index.superseded
        for _, _, summary in read_summaries(self._storage, index.superseded):
            if isinstance(summary, IndexSummary):
                self._named.update(summary.chunks)

    def _check_file(self, worker: str, path: str, is_final: bool) -> bool:
        """Verify an index file and its values. Return False if one of its files is missing, unless `is_final`."""
        try:
            summary, rows = check_index_file(self._storage, worker, path, self._findings)
        except (FileError, FileNotFoundError) as exc:
            if isinstance(exc, FileNotFoundError) and not is_final:
                return False
            self._findings.damaged(path, exc, worker)
            return True
        self._named.update(summary.chunks)
        if rows is None:
            return True
        self._steps.setdefault(worker, []).append(np.array([step.global_step for step in summary.steps], np.int64))
        found = [self._check_chunk(chunk, rows, is_final) for chunk in sorted(summary.chunks)]
        return all(found)

    def _check_chunk(self, chunk: str, rows: pa.Table, is_final: bool) -> bool:
        """Verify the values of an index file in one chunk. Return False if it is missing, unless `is_final`."""
        of_chunk = rows.filter(pc.equal(rows["chunk"], chunk))
        try:
            # A chunk that was published since the listing is not known to be small.
            file = self._files.get(chunk) or StoredFile(chunk, self._storage.size(chunk))
            check_chunk(self._storage, file, of_chunk, self._findings)
        except (FileError, FileNotFoundError) as exc:
            if isinstance(exc, FileNotFoundError) and not is_final:
                return False
            for row in rows_of(of_chunk):
                self._findings.value_damaged(row, exc)
        return True

    # Parts that are not damaged.

    def _unfinished(self) -> Iterator[Unfinished]:
        workers = self._snapshot.workers
        if not workers.job_ended:
            for info in workers.writing:
                yield Unfinished(info.worker, "it has no end mark: it still writes, or was killed")
            for worker in workers.not_begun:
                yield Unfinished(worker, "it has not begun to save")
        current = [info.worker for info in workers.infos if info.session == max(each.session for each in workers.infos)]
        saved = {worker: np.unique(np.concatenate(self._steps.get(worker, [_NOTHING]))) for worker in current}
        steps = np.unique(np.concatenate([_NOTHING, *saved.values()]))
        for worker in current:
            # A worker that joined later lacks no step before.
            first = saved[worker].min(initial=workers.session_start)
            missing = np.setdiff1d(steps[steps >= first], saved[worker], assume_unique=True)
            if len(missing):
                yield Unfinished(worker, "it did not save all steps that other workers saved", tuple(missing.tolist()))

    def _unnamed(self) -> Iterator[Unnamed]:
        for path, file in sorted(self._files.items()):
            if path in self._named or self._findings.was_read(path) or self._findings.is_damaged(path):
                continue
            if TEMPORARY.fullmatch(path):
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
