"""The source of an export: the index files of a run at one moment, grouped into parts."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import CorruptFile, FileError, MissingChunk, StorageError
from ..format.arrow_arrays import column, numbers, numpy_of
from ..format.chunk_reader import ChunkFile
from ..format.schema import INDEX_SCHEMA, RUN_FILE, TENSORS_SCHEMA, flush_range_of
from ..read.counting_rows import (
    ValueLocation,
    index_rows,
    starts_of_row_groups,
    superseded_rows,
    value_locations,
)
from ..snapshot.columns import Integers, Lookup
from ..snapshot.saved_steps import SavedSteps
from ..snapshot.snapshot import Snapshot, superseded_files, take
from ..storage.open import Storage
from .tables import GROWING, OF_INDEX, with_run
from .target import Held, Part, Position

PART_ROWS = 1_000_000
"""The least number of index rows in a part, except the last one."""

Since = int | datetime | None


class _File(NamedTuple):
    """An index file with steps that count."""

    number: int
    path: str
    first_step: int
    last_step: int
    num_rows: int


class _WorkerFiles:
    """The index files of a worker at one moment, in the order of steps."""

    def __init__(self, steps: SavedSteps, worker: str, damaged: Mapping[str, FileError]) -> None:
        self._worker, self.is_whole = worker, not damaged
        """True if no file of the worker is damaged, missing or unreadable."""
        self.saved = steps.of_worker(worker)
        """The steps of the worker that can be exported."""
        # Files after one that is not readable yet are left out, because the next export would then skip it.
        pending = (flush_range_of(path) for path, error in damaged.items() if isinstance(error, StorageError))
        for first, _ in filter(None, pending):
            are_before = np.array([(of := flush_range_of(path)) and of.last < first for path in steps.paths], bool)
            columns = self.saved.columns
            self.saved = replace(self.saved, columns=columns.of(are_before[columns.file]))
        self._by_file, global_step = Lookup(self.saved.columns.file), self.saved.columns.global_step
        ends = self._by_file.least(global_step), self._by_file.greatest(global_step)
        num_rows = np.bincount(self.saved.columns.file, self.saved.num_tensors)[self._by_file.distinct].astype(np.int64)
        numbers = (column.tolist() for column in (*ends, num_rows))
        cells = zip(self._by_file.distinct, *numbers, strict=True)
        self._found = [_File(file, steps.paths[file], *of_file) for file, *of_file in cells]
        self.files = sorted(self._found, key=attrgetter("first_step"))
        self._digests: dict[int, str] = {}
        self._superseded_rows: Mapping[str, Sequence[int]] | None = None

    @property
    def last_step(self) -> int:
        """The last step; -1 if there is none."""
        return max((file.last_step for file in self.files), default=-1)

    @cached_property
    def _steps(self) -> list[tuple[int, str, int, int, int]]:
        columns, num_tensors = self.saved.columns, self.saved.num_tensors.tolist()
        cells = zip(columns.keys(), columns.saved_at.tolist(), num_tensors, strict=True)
        return sorted((step, mode, mode_step, at, num) for (mode, mode_step, step), at, num in cells)

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

    def superseded_rows(self, storage: Storage) -> Mapping[str, Sequence[int]]:
        """Return the numbers of superseded rows, by file. Raises FileNotFoundError."""
        if self._superseded_rows is None:
            paths = [file.path for file in self._found]
            unknown = {self._worker: self.saved.unknown.get(self._worker, ())}
            self._superseded_rows = superseded_rows(storage, paths, self.saved.repeated, unknown)
        return self._superseded_rows

    def agreed(self, exported: Mapping[int, str]) -> int:
        """Return the last exported step up to which all exported rows still count; -1 if there is none."""
        last = max(exported, default=-1)
        if not self.is_whole or not exported:
            return last
        found = self.digests(exported.keys())
        return max((step for step, digest in exported.items() if digest == found[step]), default=-1)

    def steps_in(self, file: _File) -> tuple[Integers, Integers]:
        """Return the global steps of a file, and when they were saved."""
        rows = self._by_file.rows(file.number)
        return self.saved.columns.global_step[rows], self.saved.columns.saved_at[rows]

    def groups(self, after: int) -> Iterator[list[_File]]:
        """Yield the files with steps after a global step, some at a time."""
        group: list[_File] = []
        rows = 0
        for file in self.files:
            if file.last_step > after:
                group.append(file)
                rows += file.num_rows
            if rows >= PART_ROWS:
                yield group
                group, rows = [], 0
        if group:
            yield group


class Source:
    """One run at the moment of a snapshot, which is also that of small tables, or of the last refresh."""

    def __init__(self, run: str, storage: Storage, snapshot: Snapshot) -> None:
        self.own_name = self.run = run
        """The name of the run here. The target may have it under another name, `run`."""
        self.identity = _identity(storage)
        self._storage = storage
        self._missed: set[str] = set()
        """Chunks that were missing when their values were read."""
        self.damaged: dict[str, FileError] = {}
        """The errors of files, by their full path."""
        self._use(snapshot)

    def is_in(self, held: Held | None) -> bool:
        """Return whether a target holds this run."""
        return held is not None and held.identity == self.identity

    def refresh(self) -> None:
        """List the files again, with new steps."""
        for name in ("_names", "_went_back"):
            self.__dict__.pop(name, None)
        self._use(take(self._storage))

    def _use(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._files = dict[str, _WorkerFiles]()
        for worker, index in self._snapshot.index.items():
            for path, error in index.damaged.items():
                self._exclude(path, error)
            self._files[worker] = _WorkerFiles(self._snapshot.steps, worker, index.damaged)

    @property
    def snapshot(self) -> str:
        """The id of the snapshot that is exported."""
        return self._snapshot.id

    @property
    def digest(self) -> str:
        """A digest of all steps, which compaction does not change."""
        return self.digest_at({worker: files.last_step for worker, files in self._files.items() if files.files})

    def digest_at(self, last_steps: Mapping[str, int]) -> str:
        """Return the digest of the steps up to the last one of each worker; workers without steps do not matter."""
        none = _WorkerFiles(SavedSteps(), "", {})
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
            ends = [max((file.last_step for file in group), default=after) for group in groups]
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
                    index_rows=sum(file.num_rows for file in group),
                )
                last = after = end

    def _agreed(self, files: _WorkerFiles, exported: Mapping[int, str]) -> int:
        """Return the last exported step up to which all exported rows still count.

        A run that has lost its last files, and has not gone back, deletes nothing from the target.
        """
        last, agreed = max(exported, default=-1), files.agreed(exported)
        return last if agreed < last and files.last_step < last and not self._went_back else agreed

    @cached_property
    def _went_back(self) -> bool:
        return bool(superseded_files(self._storage, self._snapshot))

    @cached_property
    def _names(self) -> set[str]:
        return set(self._snapshot.steps.names)

    def rows(self, table: str, held: Held | None) -> int:
        """Return the number of index rows in the parts of a table that a target lacks."""
        count = 0
        for worker, files in self._files.items():
            after = self._agreed(files, held.digests.get(Position(table, worker), {}) if held else {})
            count += sum(file.num_rows for group in files.groups(after) for file in group)
        return count

    def _batches(
        self, table: str, worker: str, files: Sequence[_File], span: _Span
    ) -> Callable[[pa.Schema], Iterator[pa.RecordBatch]]:
        def batches(schema: pa.Schema) -> Iterator[pa.RecordBatch]:
            for rows in self._rows(table, worker, files, span):
                yield from with_run(self.run, rows, schema)

        return batches

    def _rows(self, table: str, worker: str, files: Sequence[_File], span: _Span) -> Iterator[pa.Table]:
        if table == "steps":
            yield _steps(self._files[worker].saved, span)
        elif table == "tensor_values":
            for path, rows in self._index(worker, files, span, ValueLocation._fields):
                of_chunk = attrgetter("chunk")
                for chunk, inside in groupby(sorted(self._locations(path, rows), key=of_chunk), of_chunk):
                    yield from self._values_in(chunk, list(inside))
        else:
            for _, rows in self._index(worker, files, span):
                yield OF_INDEX[table](rows)

    def _index(
        self, worker: str, files: Sequence[_File], span: _Span, columns: Sequence[str] = tuple(INDEX_SCHEMA.names)
    ) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows of some index files, without superseded ones, with the path of each file."""
        superseded = self._files[worker].superseded_rows(self._storage)
        for file in files:
            steps, saved_at = self._files[worker].steps_in(file)
            is_in = span.has(steps, saved_at)
            left_out = superseded.get(file.path, ())
            try:
                for rows in index_rows(self._storage, file.path, columns, left_out):
                    if not is_in.all():
                        rows = rows.filter(pc.is_in(rows["global_step"], numbers(steps[is_in], pa.int64())))
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
            self._exclude(chunk, MissingChunk(chunk, "the index names this chunk, but it is missing"))


@dataclass(frozen=True)
class _Span:
    """The selected steps: those after one global step and up to another, and since a step or a time."""

    after: int
    last: int
    since: Since

    def has(self, global_step: Integers, saved_at_us: Integers) -> npt.NDArray[np.bool_]:
        """Return for each step whether it is selected."""
        is_in = (self.after < global_step) & (global_step <= self.last)
        if isinstance(self.since, datetime):
            return is_in & (saved_at_us >= _utc(self.since).timestamp() * 1e6)
        return is_in if self.since is None else is_in & (global_step >= self.since)


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _steps(saved: SavedSteps, span: _Span) -> pa.Table:
    """Return the selected steps of a worker, as the view `steps` has them."""
    steps = saved.table().drop_columns(["run"])
    cells = (numpy_of(steps[name].combine_chunks().cast(pa.int64())) for name in ("global_step", "saved_at"))
    return steps.filter(column(span.has(*cells).tolist(), pa.bool_())).cast(GROWING["steps"].remove(0))


def _identity(storage: Storage) -> str:
    """Return the identity of a run: a digest of run.json, which is written once and has a time in microseconds."""
    return hashlib.sha256(storage.read_document(RUN_FILE)).hexdigest()[:16]


def value_rows(storage: Storage, chunk: str, wanted: Iterable[ValueLocation]) -> Iterator[pa.Table]:
    """Yield the rows of a chunk at these locations, one row group at a time.

    Raises:
        CorruptFile: The values cannot be read.
        FileNotFoundError: The chunk is missing.
    """
    try:
        file = ChunkFile(storage, chunk)
        reader = file.parquet()
        starts = starts_of_row_groups(storage, chunk)
        rows = sorted({row for at in wanted for row in at.rows(starts)})
        for group, inside in groupby(rows, lambda row: bisect_right(starts, row) - 1):
            file.fetch(reader.metadata, group, TENSORS_SCHEMA.names)
            table: Any = reader.read_row_group(group, columns=TENSORS_SCHEMA.names, use_threads=False)
            taken = table.take(pa.array([row - starts[group] for row in inside], pa.int64()))
            yield taken.select(TENSORS_SCHEMA.names).cast(TENSORS_SCHEMA)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as exc:
        raise CorruptFile(chunk, f"its values cannot be read: {exc}") from exc
