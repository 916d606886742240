"""The source of an export: the index files of a run at one moment, grouped into parts."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import CorruptFile, FileError, MissingChunk, StorageError
from ..format.arrow_arrays import column, numbers
from ..format.schema import INDEX_SCHEMA, RUN_FILE, flush_range_of
from ..read.counting_rows import ValueLocation, index_rows, superseded_rows, value_locations
from ..snapshot.index_files import IndexFile, read_index, superseded_files
from ..snapshot.saved_steps import SavedSteps
from ..snapshot.snapshot import digest_of_path, id_of_digests
from ..storage.open import Storage
from .rows import value_rows
from .tables import GROWING, OF_INDEX, with_run
from .target import Held, Part, Position

PART_ROWS = 1_000_000
"""The least number of index rows in a part, except the last one."""

Since = int | datetime | None


class _WorkerFiles:
    """The index files of a worker at one moment, in the order of steps."""

    def __init__(self, files: Sequence[IndexFile], is_whole: bool) -> None:
        self._found = files
        self.files = sorted(files, key=_first_step)
        self.last_steps = list(map(_last_step, self.files))
        self.is_whole = is_whole
        """True if no file of the run is damaged, missing or unreadable."""
        self._digests: dict[int, str] = {}
        self._superseded_rows: Mapping[str, Sequence[int]] | None = None

    @cached_property
    def _steps(self) -> list[tuple[int, str, int, int, int]]:
        return sorted(
            (step.global_step, step.mode, step.mode_step, step.saved_at_us, len(file.summary.name_sets[step.name_set]))
            for file in self.files
            for step in file.summary.steps
        )

    def digests(self, last_steps: Collection[int]) -> Mapping[int, str]:
        """Return digests of all steps up to a step, at least for each of `last_steps`.

        A digest changes if a step is saved again, with other tensors or at another time, but not by compaction.
        """
        if not set(last_steps) <= self._digests.keys():
            hashed, begin = hashlib.blake2b(digest_size=8), 0
            for last in sorted(last_steps):
                end = bisect_right(self._steps, last, key=itemgetter(0))
                hashed.update("".join(map(repr, self._steps[begin:end])).encode())
                # 60 bits fit into a signed integer.
                self._digests[last], begin = hashed.hexdigest()[:15], end
        return self._digests

    @cached_property
    def saved(self) -> SavedSteps:
        """The steps of the worker."""
        return SavedSteps().added(self._found)

    def superseded_rows(self, storage: Storage) -> Mapping[str, Sequence[int]]:
        """Return the numbers of superseded rows, by file. Raises FileNotFoundError."""
        if self._superseded_rows is None:
            paths = [file.path for file in self._found]
            self._superseded_rows = superseded_rows(storage, paths, self.saved.repeated, self.saved.unknown)
        return self._superseded_rows

    def agreed(self, exported: Mapping[int, str]) -> int:
        """Return the last exported step up to which all exported rows still count; -1 if there is none."""
        last = max(exported, default=-1)
        if not self.is_whole or not exported:
            return last
        found = self.digests(exported.keys())
        return max((step for step, digest in exported.items() if digest == found[step]), default=-1)

    def groups(self, after: int) -> Iterator[list[IndexFile]]:
        """Yield the files with steps after a global step, some at a time."""
        group: list[IndexFile] = []
        rows = 0
        for file, last_step in zip(self.files, self.last_steps, strict=True):
            if last_step > after:
                group.append(file)
                rows += file.summary.rows
            if rows >= PART_ROWS:
                yield group
                group, rows = [], 0
        if group:
            yield group


class Source:
    """One run at the moment of the construction or of the last refresh."""

    def __init__(self, run: str, storage: Storage, workers: Sequence[str]) -> None:
        self.own_name = self.run = run
        """The names of the run here and in the target."""
        self.identity = _identity(storage)
        self._storage = storage
        self._workers = workers
        self._missed: set[str] = set()
        """Chunks that were missing when their values were read."""
        self.damaged: dict[str, FileError] = {}
        """The errors of files, by their full path."""
        self.refresh()

    def is_what(self, held: Held | None) -> bool:
        """Return whether a target holds this run."""
        return held is not None and held.identity == self.identity

    def refresh(self) -> None:
        """List the files again, with new steps."""
        for name in ("_names", "_went_back"):
            self.__dict__.pop(name, None)
        read = {worker: read_index(self._storage, worker) for worker in self._workers}
        for index, _ in read.values():
            for path, error in index.damaged.items():
                self._exclude(path, error)
        self._files = {worker: _readable(files, index.damaged) for worker, (index, files) in read.items()}
        self._indexes = {worker: index for worker, (index, _) in read.items()}

    @property
    def snapshot(self) -> str:
        """The id of the snapshot that the files make up."""
        files = (file for of_worker in self._files.values() for file in of_worker.files if file.summary.steps)
        return id_of_digests(digest_of_path(file.path) for file in files)

    @property
    def digest(self) -> str:
        """A digest of all steps, which compaction does not change."""
        return self.digest_at({worker: max(files.last_steps) for worker, files in self._files.items() if files.files})

    def digest_at(self, last_steps: Mapping[str, int]) -> str:
        """Return the digest of the steps up to the last one of each worker; workers without steps do not matter."""
        none = _WorkerFiles((), is_whole=True)
        of_workers = [
            f"{worker} {self._files.get(worker, none).digests([last])[last]}"
            for worker, last in sorted(last_steps.items())
        ]
        return hashlib.blake2b("\n".join(of_workers).encode(), digest_size=8).hexdigest()[:15]

    def _exclude(self, path: str, error: FileError) -> None:
        self.damaged[f"{self._storage.url}/{path}"] = error

    def parts(self, table: str, held: Held | None, since: Since = None) -> Iterator[Part]:
        """Yield the parts of a table that a target lacks, by worker, in the order of steps.

        If a worker went back to a checkpoint after an export, its first part replaces the rows that no longer count.
        """
        for worker, files in self._files.items():
            exported = held.digests.get(Position(table, worker), {}) if held else {}
            last, after = max(exported, default=-1), self._agreed(files, exported)
            groups = list(files.groups(after))
            if not groups and last > after:
                groups = [[]]  # the worker went back, and has saved nothing since
            ends = [max(map(_last_step, group), default=after) for group in groups]
            digests = files.digests(ends)
            for group, end in zip(groups, ends, strict=True):
                batches = self._batches(table, worker, group, _Span(after, end, since))
                yield Part(
                    table,
                    self.run,
                    self.identity,
                    worker,
                    held=last,
                    after=after,
                    last_step=end,
                    digest=digests[end],
                    schema=GROWING[table],
                    batches=batches,
                    names=lambda: self._names,
                    index_rows=sum(file.summary.rows for file in group),
                )
                last = after = end

    def _agreed(self, files: _WorkerFiles, exported: Mapping[int, str]) -> int:
        """Return the last exported step up to which all exported rows still count.

        A run that has lost its last files, and has not gone back, deletes nothing from the target.
        """
        last, agreed = max(exported, default=-1), files.agreed(exported)
        is_shorter = max(files.last_steps, default=-1) < last
        return last if agreed < last and is_shorter and not self._went_back else agreed

    @cached_property
    def _went_back(self) -> bool:
        return any(superseded_files(self._storage, worker, index) for worker, index in self._indexes.items())

    @cached_property
    def _names(self) -> set[str]:
        files = (file for of_worker in self._files.values() for file in of_worker.files)
        return {tensor.name for file in files for tensors in file.summary.name_sets for tensor in tensors}

    def rows(self, table: str, held: Held | None) -> int:
        """Return the number of index rows in the parts of a table that a target lacks."""
        count = 0
        for worker, files in self._files.items():
            after = self._agreed(files, held.digests.get(Position(table, worker), {}) if held else {})
            count += sum(file.summary.rows for group in files.groups(after) for file in group)
        return count

    def _batches(
        self, table: str, worker: str, files: Sequence[IndexFile], span: _Span
    ) -> Callable[[pa.Schema], Iterator[pa.RecordBatch]]:
        def batches(schema: pa.Schema) -> Iterator[pa.RecordBatch]:
            for rows in self._rows(table, worker, files, span):
                yield from with_run(self.run, rows, schema)

        return batches

    def _rows(self, table: str, worker: str, files: Sequence[IndexFile], span: _Span) -> Iterator[pa.Table]:
        if table == "steps":
            yield _steps(self._files[worker].saved, span)
        elif table == "tensor_values":
            for path, rows in self._index(worker, files, span, ValueLocation._fields):
                for chunk, inside in groupby(sorted(self._locations(path, rows), key=_chunk), _chunk):
                    yield from self._values_in(chunk, list(inside))
        else:
            for _, rows in self._index(worker, files, span):
                yield OF_INDEX[table](rows)

    def _index(
        self, worker: str, files: Sequence[IndexFile], span: _Span, columns: Sequence[str] = tuple(INDEX_SCHEMA.names)
    ) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows of some index files, without superseded ones, with the path of each file."""
        superseded = self._files[worker].superseded_rows(self._storage)
        for file in files:
            steps = span.steps(file)
            whole = len(steps) == len(file.summary.steps)
            left_out = superseded.get(file.path, ())
            try:
                for rows in index_rows(self._storage, file.path, columns, left_out):
                    if not whole:
                        rows = rows.filter(pc.is_in(rows["global_step"], numbers(list(steps), pa.int64())))
                    yield file.path, rows
            except CorruptFile as exc:
                self._exclude(file.path, exc)

    def _locations(self, path: str, rows: pa.Table) -> list[ValueLocation]:
        try:
            return list(value_locations(path, rows))
        except CorruptFile as exc:
            self._exclude(path, exc)
            return []

    def _values_in(self, chunk: str, wanted: Sequence[ValueLocation]) -> Iterator[pa.Table]:
        try:
            yield from value_rows(self._storage, chunk, wanted)
        except CorruptFile as exc:
            self._exclude(chunk, exc)
        except FileNotFoundError:
            # The chunk may have been compacted: the index is read once more for the new locations of its values.
            if chunk not in self._missed:
                self._missed.add(chunk)
                raise
            self._exclude(chunk, MissingChunk(chunk, "the index names this chunk, and it is missing"))


@dataclass(frozen=True)
class _Span:
    """The selected steps: those after one global step and up to another, and since a step or a time."""

    after: int
    last: int
    since: Since

    def steps(self, file: IndexFile) -> list[int]:
        return [step.global_step for step in file.summary.steps if self.has(step.global_step, step.saved_at_us)]

    def has(self, global_step: int, saved_at_us: int) -> bool:
        if isinstance(self.since, datetime):
            since = saved_at_us >= _utc(self.since).timestamp() * 1e6
        else:
            since = self.since is None or global_step >= self.since
        return since and self.after < global_step <= self.last


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _steps(saved: SavedSteps, span: _Span) -> pa.Table:
    """Return the selected steps of a worker, as the view `steps` has them."""
    steps = saved.table().drop_columns(["run"])
    cells = zip(steps["global_step"].to_pylist(), steps["saved_at"].cast(pa.int64()).to_pylist(), strict=True)
    return steps.filter(column([span.has(*each) for each in cells], pa.bool_())).cast(GROWING["steps"].remove(0))


def _readable(files: Sequence[IndexFile], damaged: Mapping[str, FileError]) -> _WorkerFiles:
    """Return the readable files of a worker up to the first one that is not readable yet.

    Later files are left out, because the next export would then skip the unreadable one.
    """
    awaited = [flush_range_of(path) for path, error in damaged.items() if isinstance(error, StorageError)]
    for missing in filter(None, awaited):
        known = [(file, flush_range_of(file.path)) for file in files]
        files = [file for file, flushes in known if flushes and flushes.last < missing.first]
    return _WorkerFiles(files, not damaged)


def _identity(storage: Storage) -> str:
    """Return the identity of a run: a digest of run.json, which is written once and has a time in microseconds."""
    return hashlib.sha256(storage.read_document(RUN_FILE)).hexdigest()[:16]


def _first_step(file: IndexFile) -> int:
    return min((step.global_step for step in file.summary.steps), default=-1)


def _last_step(file: IndexFile) -> int:
    return max((step.global_step for step in file.summary.steps), default=-1)


def _chunk(location: ValueLocation) -> str:
    return location.chunk
