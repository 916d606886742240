"""The catalogue of one run: its saved steps, the rows of its index, and its files that can be read."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from ...engines.base import LEFT_OUT, MissingFile
from ...errors import CorruptFile, FileError, MissingChunk, StorageError
from ...format import arrow_arrays
from ...format.index_footer import is_index_path
from ...format.index_reader import IndexRows
from ...format.index_types import SavedTensor
from ...format.lazy import lazy
from ...format.schema import FINDINGS, FINDINGS_SCHEMA, INDEX_SCHEMA, MANIFEST, TENSORS_SCHEMA, RunInfo, WorkerInfo
from ...mode import ModeKeys
from ...snapshot.index_files import superseded_files
from ...snapshot.saved_steps import SavedSteps
from ...snapshot.snapshot import Snapshot, settled, take
from ...snapshot.step_range import StepRange
from ...snapshot.workers import mark_ended
from ...storage.open import Storage
from .counting_rows import rows_at, superseded_rows
from .readable_files import CheckedFiles, ReadableFiles
from .row_cache import RowCache
from .unsaved_values import UnsavedValues

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_TEXTS = pa.list_(pa.string())
COLLECTIONS = pa.schema(
    [
        ("run", pa.string()),
        ("worker", pa.string()),
        ("name", pa.string()),
        ("saved", pa.bool_()),
        ("include_regex", _TEXTS),
        ("tensor_names", _TEXTS),
        ("save_config", pa.string()),
        ("reduction_config", pa.string()),
        ("save_histogram", pa.bool_()),
    ]
)
"""The collections that each worker was configured to save."""
_LEFT_OUT = "left out, the rest is readable"


class Catalogue:
    """The contents of a run, as of the last `refresh`. Safe to use from several threads."""

    def __init__(
        self,
        storage: Storage,
        run: RunInfo,
        range_steps: StepRange | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.storage, self._run, self._range = storage, run, range_steps
        self.lock = threading.RLock()
        """Held by every method; who holds it keeps the catalogue as it is."""
        self.snapshot = Snapshot(run)
        """The run, as of the last `refresh`."""
        self.version = 0
        """Grows with each snapshot."""
        self._become(snapshot or take(storage, run, range_steps=range_steps))

    @lazy
    def _rows(self) -> RowCache:
        return RowCache(IndexRows(self.storage), self._range or (None, None))

    @lazy
    def _readable_files(self) -> ReadableFiles:
        return ReadableFiles(self.storage)

    @lazy
    def _unsaved_values(self) -> UnsavedValues:
        return UnsavedValues(self.storage, self._readable_files.num_rows)

    def refresh(self, claims: bool = False) -> bool:
        """Find what is new in the run, and read the claims again on request. Return whether anything is new."""
        with self.lock:
            return self._become(take(self.storage, self._run, self.snapshot, claims=claims))

    def mark_ended(self, worker: str | None) -> None:
        """Record in the run that all workers, or one, will write no more; see `workers.mark_ended`."""
        with self.lock:
            workers = mark_ended(self.storage, self.snapshot.workers, worker)
            if workers is not self.snapshot.workers:
                self._become(replace(self.snapshot, workers=workers))

    def _become(self, snapshot: Snapshot) -> bool:
        """Read another snapshot from now on, and log what is damaged in it. Return whether it is another."""
        before, self.snapshot = self.snapshot, snapshot
        self.version += snapshot is not before
        for path in () if snapshot is before else snapshot.damaged.keys() - before.damaged.keys():
            what = "opened by listing, because its manifest is damaged" if path == MANIFEST else _LEFT_OUT
            logger.warning("run %s: %s: %s", self.storage.url, what, snapshot.damaged[path])
        return snapshot is not before

    @property
    def steps(self) -> SavedSteps:
        """The saved steps, as of the last `refresh`."""
        return self.snapshot.steps

    def recover(self) -> bool:
        """Find the files that replaced others, after files were found missing or damaged.

        Return whether there were any. What is new in them waits for the next refresh.
        """
        with self.lock:
            return self._become(settled(self.storage, self.snapshot))

    def rows(self, name: str, global_step: int, statistics: bool = False) -> list[SavedTensor]:
        """Return the rows of one tensor at one step, one a worker; with statistics only on request."""
        return self._read(lambda: self._rows.rows(self.steps, name, global_step, statistics))

    def rows_of_step(self, global_step: int) -> dict[str, list[SavedTensor]]:
        """Return the rows of every tensor at one step, with statistics: by name, one a worker."""
        return self._read(lambda: self._rows.of_step(self.steps, global_step))

    def rows_of_tensors(
        self,
        names: Sequence[str],
        mode: ModeKeys = ModeKeys.GLOBAL,
        span: tuple[int, int] | None = None,
        worker: str | None = None,
    ) -> list[SavedTensor]:
        """Return the rows of some tensors, of every worker, without statistics.

        With a span, those at steps of the mode with first <= step < end; with a worker, those of it. Others may be
        among them.
        """
        return self._read(lambda: self._rows.of_tensors(self.steps, names, mode, span, worker))

    def _read(self, read: Callable[[], _T]) -> _T:
        """Return what `read` returns, again where a file was missing because another one replaced it."""
        with self.lock:
            while True:
                try:
                    return read()
                except CorruptFile:
                    if not self.recover():
                        raise

    def rows_now(self, rows: Sequence[SavedTensor]) -> list[SavedTensor]:
        """Return the current rows of the same tensors, after a chunk was found missing.

        Compaction may have moved their values to another chunk.
        """
        with self.lock:
            self.recover()
            by_worker = ({each.worker: each for each in self.rows(row.name, row.global_step)} for row in rows)
            return [now.get(row.worker, row) for row, now in zip(rows, by_worker, strict=True)]

    def steps_table(self, run: str = "") -> pa.Table:
        """Return the rows of the view `steps`, of a run of this name."""
        return self.steps.table(run)

    def collections(self, run: str = "") -> pa.Table:
        """Return what each worker was configured to save, of a run of this name."""
        documents = ((info, each) for info in self.snapshot.workers.infos for each in info.collections)
        return arrow_arrays.table(COLLECTIONS, [(run, *_collection_row(*each)) for each in documents])

    def superseded_rows(self, run: str = "") -> pa.Table:
        """Return the rows of index files whose tensor was saved again at the step, of a run of this name.

        Raises:
            MissingFile: A file was deleted meanwhile, and no other has its rows.
        """
        return self._left_out(run, lambda: ((path, row) for path, rows in self.rows_left_out().items() for row in rows))

    def unsaved_values(self, run: str = "") -> pa.Table:
        """Return the rows of chunks that hold no saved value, of a run of this name.

        Raises:
            CorruptFile: An index file is damaged.
            MissingFile: A file was deleted meanwhile, and no other has its rows.
        """
        find = self._unsaved_values.find
        return self._left_out(run, lambda: find(self.index_files(), self.chunk_files(), self.rows_left_out()))

    def rows_left_out(self) -> Mapping[str, Sequence[int]]:
        """Return the rows of index files that do not count, by file.

        They are of a tensor that was saved again at the step, or of a step that waits for the next refresh.

        Raises:
            CorruptFile: A compacted file is damaged.
            FileNotFoundError: A file was deleted meanwhile.
        """
        found, steps = dict[str, Sequence[int]](), self.steps
        # A compacted file may hold a tensor that was saved again since.
        if repeated := (new := steps.added(self.snapshot.waiting, self._range)).repeated:
            held = set(new.files_with({step for _, step, _ in repeated}))
            paths = [path for path in self.index_files() if path in held]
            found = superseded_rows(self.storage, paths, repeated)
        for file in self.snapshot.waiting if steps.unknown else ():
            unknown = rows_at(self.storage, file.path, steps.unknown.get(file.worker, ()))
            found[file.path] = sorted({*found.get(file.path, ()), *unknown})
        return found

    def _left_out(self, run: str, find: Callable[[], Iterable[tuple[str, int]]]) -> pa.Table:
        with self.lock:
            while True:
                try:
                    return arrow_arrays.table(LEFT_OUT, [(run, *each) for each in find()])
                except FileNotFoundError as exc:
                    if not self.recover():
                        raise MissingFile(f"a file was deleted while it was read: {exc}") from exc

    def readable_index(self, paths: Sequence[str]) -> list[str]:
        """Return those of some index files that are whole; the others are among `damaged` afterwards.

        Raises:
            MissingFile: Some were superseded meanwhile: `steps` names others now.
        """
        with self.lock:
            checked = self._readable_files.check_new(paths, INDEX_SCHEMA)
            if any(isinstance(error, MissingChunk) for _, error in checked) and self.recover():
                raise MissingFile("index files were superseded while they were read")
            self._check_awaited(checked)
            return self._readable(checked)

    # The files of the views.

    def index_files(self) -> list[str]:
        """Return the index files that can be read."""
        return self._whole(SavedSteps.files, lambda paths: self._readable_files.check_new(paths, INDEX_SCHEMA))

    def chunk_files(self) -> list[str]:
        """Return the files of raw values that can be read."""
        return self._whole(SavedSteps.chunk_paths, lambda paths: self._readable_files.check(paths, TENSORS_SCHEMA))

    def _whole(
        self, named: Callable[[SavedSteps], list[str]], check: Callable[[Sequence[str]], CheckedFiles]
    ) -> list[str]:
        """Return the files that the steps name, and that are whole. A file that was compacted is replaced."""
        with self.lock:
            while True:
                checked = check(named(self.steps))
                is_missing = any(isinstance(error, MissingChunk) for _, error in checked)
                # What was listed a moment ago may have been compacted and deleted since.
                if not (is_missing and self.recover()):
                    self._check_awaited(checked)
                    return self._readable(checked)

    def finding_files(self) -> list[str]:
        """Return the files of findings that can be read."""
        paths = parquet_files(self.storage, FINDINGS)
        with self.lock:
            return self._readable(self._readable_files.check(paths, FINDINGS_SCHEMA))

    def superseded_files(self) -> list[str]:
        """Return the superseded index files that can be read, of which no other holds all rows."""
        indexes = self.snapshot.index.items()
        found = [path for worker, index in indexes for path in superseded_files(self.storage, worker, index)]
        return [path for path, error in self._readable_files.check(found, INDEX_SCHEMA) if error is None]

    def _check_awaited(self, checked: CheckedFiles) -> None:
        """Raise the StorageError of an index file that could be read before, until it is taken for lost."""
        self._become(self.snapshot.with_readable(path for path, error in checked if error is None))
        for path, error in checked:
            if isinstance(error, StorageError):
                self._become(self.snapshot.with_unread(path))  # the next query reads it again
                if is_index_path(path) and self.snapshot.is_awaited(path):
                    raise error

    def set_aside(self, error: FileError) -> None:
        """Take note that a file of the run is damaged. The rest of the run can be read."""
        with self.lock:
            self._become(self.snapshot.with_damaged(error.path, error))

    def _readable(self, checked: CheckedFiles) -> list[str]:
        """Return the files that exist and are whole: one bad file would make a view useless."""
        for path, error in checked:
            if error is not None:
                self._become(self.snapshot.with_damaged(path, error))
        return [path for path, error in checked if error is None]


def parquet_files(storage: Storage, folder: str) -> list[str]:
    """Return the paths of the Parquet files directly in a folder of a run."""
    return [f"{folder}/{name}" for name in storage.list(folder) if name.endswith(".parquet")]


def _collection_row(info: WorkerInfo, document: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a row of the table `collections` from a collection's JSON document, without the run."""
    return (
        info.worker,
        document["name"],
        document["name"] in info.include_collections,
        document.get("include_regex") or [],
        document.get("tensor_names") or [],
        json.dumps(document.get("save_config")),
        json.dumps(document.get("reduction_config")),
        document.get("save_histogram"),
    )
