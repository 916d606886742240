"""A run as an export reads it: its index files at this moment, grouped into parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import CorruptFile, FileError, MissingChunk, StorageError
from ..format.flush_range import flush_range_of
from ..format.index_log import IndexFiles, NewFile
from ..format.index_types import StepSummary
from ..format.schema import INDEX_SCHEMA, RUN_FILE, index_folder
from ..storage.open import Storage
from .rows import ValueLocation, index_rows, value_locations, value_rows
from .tables import GROWING, OF_INDEX, with_run
from .target import Held, Part, Position

PART_ROWS = 1_000_000
"""Index rows that are exported together, at least, where a run has as many."""

Since = int | datetime | None
_TIME = INDEX_SCHEMA.field("saved_at").type


@dataclass(frozen=True)
class _Group:
    """Index files of a worker that follow each other."""

    files: Sequence[NewFile]

    @property
    def last_step(self) -> int:
        return max(map(_last_step, self.files))


class Source:
    """One run as it was when this was made or refreshed: later steps are not part of it."""

    def __init__(self, run: str, storage: Storage, workers: Sequence[str]) -> None:
        self.own_name = self.run = run
        """The names of the run here and in the target."""
        self.identity = _identity(storage)
        self._storage = storage
        self._workers = workers
        self._missed: set[str] = set()
        """Chunks that were missing when they were read."""
        self.damaged: dict[str, FileError] = {}
        """By the whole path of the file."""
        self.refresh()

    def is_what(self, held: Held | None) -> bool:
        """Return whether a target holds this run."""
        return held is not None and held.identity == self.identity

    def refresh(self) -> None:
        """List the files again, with new steps."""
        seen = IndexFiles(self._storage)
        self._files = {worker: sorted(seen.find_new(worker), key=_first_step) for worker in self._workers}
        for path, error in seen.damaged.items():
            self._set_aside(path, error)
            if isinstance(error, StorageError):
                self._stop_before(path)

    def _stop_before(self, path: str) -> None:
        """Skip a file that may be readable later, and the files of its worker that follow.

        An export never returns to steps before the last one that it has exported.
        """
        missing = flush_range_of(path)
        for worker, files in self._files.items():
            if missing and path.startswith(f"{index_folder(worker)}/"):
                known = [(file, flush_range_of(file.path)) for file in files]
                self._files[worker] = [file for file, flushes in known if flushes and flushes.last < missing.first]

    def _set_aside(self, path: str, error: FileError) -> None:
        self.damaged[f"{self._storage.url}/{path}"] = error

    def parts(self, table: str, held: Held | None, since: Since = None) -> Iterator[Part]:
        """Yield the parts of a table that a target lacks, worker by worker, in the order of steps."""
        for worker in self._files:
            after = held.last_step.get(Position(table, worker), -1) if held else -1
            for files in self._new_files(worker, after):
                yield self._part(table, worker, after, files, since)
                after = files.last_step

    def rows(self, table: str, held: Held | None) -> int:
        """Return the number of index rows in the parts of a table that a target lacks."""
        count = 0
        for worker, files in self._files.items():
            after = held.last_step.get(Position(table, worker), -1) if held else -1
            count += sum(file.summary.rows for file in files if _last_step(file) > after)
        return count

    def _new_files(self, worker: str, after: int) -> Iterator[_Group]:
        group: list[NewFile] = []
        for file in self._files[worker]:
            if _last_step(file) > after:
                group.append(file)
            if sum(each.summary.rows for each in group) >= PART_ROWS:
                yield _Group(group)
                group = []
        if group:
            yield _Group(group)

    def _part(self, table: str, worker: str, after: int, group: _Group, since: Since) -> Part:
        span = _Span(after, group.last_step, since)

        def batches(schema: pa.Schema) -> Iterator[pa.RecordBatch]:
            for rows in self._rows(table, worker, group, span):
                yield from with_run(self.run, rows, schema)

        return Part(table, self.run, self.identity, worker, after, group.last_step, GROWING[table], batches)

    def _rows(self, table: str, worker: str, group: _Group, span: _Span) -> Iterator[pa.Table]:
        if table == "steps":
            yield _steps(worker, group, span)
        elif table == "tensor_values":
            yield from self._values(group, span)
        else:
            yield from map(OF_INDEX[table], self._index(group, span))

    def _index(self, group: _Group, span: _Span) -> Iterator[pa.Table]:
        for file in group.files:
            steps = span.steps(file)
            whole = len(steps) == len(file.summary.steps)
            try:
                for rows in index_rows(self._storage, file.path):
                    yield rows if whole else rows.filter(pc.is_in(rows["global_step"], pa.array(steps, pa.int64())))
            except CorruptFile as exc:
                self._set_aside(file.path, exc)

    def _values(self, group: _Group, span: _Span) -> Iterator[pa.Table]:
        for file in group.files:
            steps = set(span.steps(file))
            try:
                wanted = [each for each in value_locations(self._storage, file.path) if each.global_step in steps]
            except CorruptFile as exc:
                self._set_aside(file.path, exc)
                continue
            for chunk, inside in groupby(sorted(wanted, key=_chunk), _chunk):
                yield from self._values_in(chunk, list(inside))

    def _values_in(self, chunk: str, wanted: Sequence[ValueLocation]) -> Iterator[pa.Table]:
        try:
            yield from value_rows(self._storage, chunk, wanted)
        except CorruptFile as exc:
            self._set_aside(chunk, exc)
        except FileNotFoundError:
            # Perhaps it was compacted: the index is read again, once, for the new locations of its values.
            if chunk not in self._missed:
                self._missed.add(chunk)
                raise
            self._set_aside(chunk, MissingChunk(chunk, "the index names this chunk, and it is missing"))


@dataclass(frozen=True)
class _Span:
    """The selected steps: those after one global step and up to another, and since a step or a time."""

    after: int
    last: int
    since: Since

    def steps(self, file: NewFile) -> list[int]:
        return [step.global_step for step in file.summary.steps if self.has(step)]

    def has(self, step: StepSummary) -> bool:
        if isinstance(self.since, datetime):
            since = step.saved_at_us >= _utc(self.since).timestamp() * 1e6
        else:
            since = self.since is None or step.global_step >= self.since
        return since and self.after < step.global_step <= self.last


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _steps(worker: str, group: _Group, span: _Span) -> pa.Table:
    """Return the steps, by the summaries of the index files."""
    found = [
        (
            step.mode,
            step.mode_step,
            step.global_step,
            worker,
            step.saved_at_us,
            len(file.summary.name_sets[step.name_set]),
        )
        for file in group.files
        for step in file.summary.steps
        if span.has(step)
    ]
    schema = GROWING["steps"].remove(0)
    columns = list(zip(*found, strict=True)) or [() for _ in schema]
    return pa.table([pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)], schema=schema)


def _identity(storage: Storage) -> str:
    """Return a digest of run.json, which is written once and has the time in microseconds."""
    return hashlib.sha256(storage.read(RUN_FILE)).hexdigest()[:16]


def _first_step(file: NewFile) -> int:
    return min((step.global_step for step in file.summary.steps), default=-1)


def _last_step(file: NewFile) -> int:
    return max((step.global_step for step in file.summary.steps), default=-1)


def _chunk(location: ValueLocation) -> str:
    return location.chunk
