"""The catalogue of one run: its saved steps, the rows of its index, and its files that can be read."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa

from ...engines.base import LEFT_OUT, MissingFile
from ...errors import CorruptFile, FileError, MissingChunk, StorageError
from ...format import arrow_arrays
from ...format.index_footer import is_index_path
from ...format.index_log import IndexFiles, NewFile, without_replaced
from ...format.index_reader import IndexRows
from ...format.index_types import SavedTensor
from ...format.schema import FINDINGS, FINDINGS_SCHEMA, INDEX_SCHEMA, TENSORS_SCHEMA, end_path
from ...format.superseded import superseded_files
from ...mode import ModeKeys
from ...snapshot.saved_steps import SavedSteps
from ...snapshot.step_range import StepRange
from ...storage.open import FileSource, Storage
from .counting_rows import superseded_rows
from .readable_files import CheckedFiles, ReadableFiles
from .row_cache import RowCache
from .unsaved_values import UnsavedValues

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


class Catalogue:
    """The contents of a run, as of the last `refresh`. Safe to use from several threads.

    `range_steps` (a, b) leaves out every global step outside a <= step < b.
    """

    def __init__(self, storage: Storage, range_steps: StepRange | None = None) -> None:
        self.storage = storage
        self._range = range_steps
        self.lock = threading.RLock()
        """Held by every method; who holds it keeps the catalogue as it is."""
        self.steps = SavedSteps()
        """The saved steps, as of the last `refresh`."""
        self._index_files = IndexFiles(storage)
        self._replacing: list[NewFile] = []
        self._derived: dict[tuple[Any, ...], Any] = {}
        self._rows = RowCache(self, IndexRows(storage), range_steps or (None, None))
        self._readable_files = ReadableFiles(storage)
        self._unsaved_values = UnsavedValues(storage, self._readable_files.num_rows)
        self._collections: Sequence[Sequence[Any]] = ()
        self.version = 0
        """Grows with each refresh that found something new."""
        self.has_lost_steps = False
        """True if steps were set aside that `steps` still has: a new catalogue does not."""

    def refresh(
        self,
        workers: Iterable[str],
        last_files: Mapping[str, str] = MappingProxyType({}),
        source: FileSource | None = None,
    ) -> bool:
        """Read the index files that are new since the last time. Return whether there were any.

        `last_files` are the last index files of the workers that have ended, by worker, as their end marks name them.
        The files are listed and read in the `source`, the run itself if None.
        """
        with self.lock:
            known, damaged = self.version, len(self.damaged)
            self._add(self._replacing)
            self._replacing, new = [], list[NewFile]()
            try:
                for worker in workers:
                    if worker in last_files:
                        self._index_files.expect(worker, last_files[worker], end_path(worker))
                    found = self._index_files.find_new(worker, source=source)
                    new += found
                    self._replace(found)
            finally:
                # Also those that were listed before an error, since no listing returns them again.
                self._add(new)
            if len(self.damaged) != damaged:
                self.changed()
            return self.version > known

    def changed(self) -> None:
        """Forget what was derived: something is new."""
        with self.lock:
            self.version += 1
            self._derived.clear()

    def derived(self, key: tuple[Any, ...], make: Callable[[], _T]) -> _T:
        """Return what `make` makes of what is known. It is kept until something is new."""
        with self.lock:
            if key not in self._derived:
                self._derived[key] = make()
            return self._derived[key]  # type: ignore[no-any-return]

    def rows(self, name: str, global_step: int, statistics: bool = False) -> list[SavedTensor]:
        """Return the rows of one tensor at one step, one a worker; with statistics only on request."""
        return self._read(lambda: self._rows.rows(name, global_step, statistics))

    def rows_of_step(self, global_step: int) -> dict[str, list[SavedTensor]]:
        """Return the rows of every tensor at one step, with statistics: by name, one a worker."""
        return self._read(lambda: self._rows.of_step(global_step))

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
        return self._read(lambda: self._rows.of_tensors(names, mode, span, worker))

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

    def set_collections(self, rows: Sequence[Sequence[Any]]) -> None:
        """Set what each worker was configured to save, as rows of the table `collections` without the run."""
        with self.lock:
            self._collections = rows
            self.changed()

    def collections(self, run: str = "") -> pa.Table:
        """Return what each worker was configured to save, of a run of this name."""
        return arrow_arrays.table(COLLECTIONS, [(run, *row) for row in self._collections])

    def superseded_rows(self, run: str = "") -> pa.Table:
        """Return the rows of index files whose tensor was saved again at the step, of a run of this name.

        Raises:
            MissingFile: A file was deleted meanwhile, and no other has its rows.
        """
        return self._left_out(
            run, lambda: ((path, row) for path, rows in self._superseded_rows().items() for row in rows)
        )

    def unsaved_values(self, run: str = "") -> pa.Table:
        """Return the rows of chunks that hold no saved value, of a run of this name.

        Raises:
            CorruptFile: An index file is damaged.
            MissingFile: A file was deleted meanwhile, and no other has its rows.
        """
        find = self._unsaved_values.find
        return self._left_out(run, lambda: find(self.index_files(), self.chunk_files(), self._superseded_rows()))

    def _superseded_rows(self) -> Mapping[str, Sequence[int]]:
        # The files may hold rows that wait for the next refresh.
        repeated = self.steps.added(self._replacing, self._range).repeated
        return superseded_rows(self.storage, self.index_files(), repeated) if repeated else {}

    def _left_out(self, run: str, find: Callable[[], Iterable[tuple[str, int]]]) -> pa.Table:
        with self.lock:
            while True:
                try:
                    return arrow_arrays.table(LEFT_OUT, [(run, *each) for each in find()])
                except FileNotFoundError as exc:
                    if not self.recover():
                        raise MissingFile(f"a file was deleted while it was read: {exc}") from exc

    def index_paths(self) -> list[str]:
        """Return the known index files, in the order in which they were found, of which only footers were verified."""
        with self.lock:
            return self.steps.files()

    def readable_index(self, paths: Sequence[str]) -> list[str]:
        """Return those of some index files that are whole; the others are among `damaged` afterwards.

        Raises:
            MissingFile: Some were superseded meanwhile: `index_paths` returns others now.
        """
        with self.lock:
            checked = list(self._readable_files.check_new(paths, INDEX_SCHEMA))
            if any(isinstance(error, MissingChunk) for _, error in checked) and self.recover():
                raise MissingFile("index files were superseded while they were read")
            self._check_awaited(checked)
            return self._readable(checked)

    def paths_between(self, mode: ModeKeys, first: int, end: int) -> list[str]:
        """Return the known index files with a step of a mode, or of all modes if it is GLOBAL, first <= step < end."""
        with self.lock:
            return self.steps.files_between(mode, (first, end))

    # New files.

    @property
    def damaged(self) -> dict[str, FileError]:
        """Index files that cannot be read, and why. The rest of the run can be."""
        return self._index_files.damaged

    @property
    def awaited(self) -> dict[str, FileError]:
        """The damaged files that may be read yet: the cause may pass."""
        return {path: error for path, error in self.damaged.items() if self._index_files.is_awaited(path)}

    def recover(self) -> bool:
        """Find the files that replaced others, after files were found missing or damaged.

        Return whether there were any. What is new in them waits for the next refresh.
        """
        with self.lock:
            found = self._index_files.rescan()
            self._replacing = without_replaced([*self._replacing, *found])
            return self._replace(found)

    @property
    def waits_for_refresh(self) -> bool:
        """True if `recover` found files whose new rows wait for the next refresh."""
        return bool(self._replacing)

    def _replace(self, found: Sequence[NewFile]) -> bool:
        """Read the rows of files that were compacted from the file that holds them now."""
        self.has_lost_steps |= self.steps.lack(found)
        steps, self.steps = self.steps, self.steps.compacted(found)
        if self.steps is steps:
            return False
        # Their rows are in another order now, and next to rows that are not known yet.
        self._rows.clear()
        self.changed()
        return True

    def _add(self, found: Sequence[NewFile]) -> None:
        if found:
            self.steps = self.steps.added(found, self._range)
            self.has_lost_steps |= self.steps.contradicts
            self.changed()

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
                checked = list(check(named(self.steps)))
                is_missing = any(isinstance(error, MissingChunk) for _, error in checked)
                # What was listed a moment ago may have been compacted and deleted since.
                if not (is_missing and self.recover()):
                    self._check_awaited(checked)
                    return self._readable(checked)

    def finding_files(self) -> list[str]:
        """Return the files of findings that can be read."""
        paths = parquet_files(self.storage, FINDINGS)
        return self._readable(self._readable_files.check(paths, FINDINGS_SCHEMA))

    def superseded_files(self) -> list[str]:
        """Return the superseded index files that can be read, of which no other holds all rows."""
        checked = self._readable_files.check(superseded_files(self.storage), INDEX_SCHEMA)
        return [path for path, error in checked if error is None]

    def _check_awaited(self, checked: CheckedFiles) -> None:
        """Raise the StorageError of an index file that could be read before, until it is taken for lost."""
        for path, error in checked:
            if error is None:
                self._index_files.succeed(path)
            elif isinstance(error, StorageError):
                self.changed()  # the next query reads it again
                self._index_files.fail(path)
                if is_index_path(path) and self._index_files.is_awaited(path):
                    raise error

    def _readable(self, checked: CheckedFiles) -> list[str]:
        """Return the files that exist and are whole: one bad file would make a view useless."""
        found = []
        for path, error in checked:
            if error is None:
                found.append(path)
            else:
                self._index_files.set_aside(path, error)
        return found


def parquet_files(storage: Storage, folder: str) -> list[str]:
    """Return the paths of the Parquet files directly in a folder of a run."""
    return [f"{folder}/{name}" for name in storage.list(folder) if name.endswith(".parquet")]


def collection_row(worker: str, saved: Sequence[str], document: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a row of the table `collections` from a collection's JSON document, without the run."""
    return (
        worker,
        document["name"],
        document["name"] in saved,
        document.get("include_regex") or [],
        document.get("tensor_names") or [],
        json.dumps(document.get("save_config")),
        json.dumps(document.get("reduction_config")),
        document.get("save_histogram"),
    )
