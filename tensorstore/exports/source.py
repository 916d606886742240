"""A run as an export reads it: which index files there are at this moment, and the parts that they make."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import CorruptFile, FileError, MissingChunk
from ..index import StepSummary, read_rows
from ..index_files import IndexFiles, NewFile
from ..schema import INDEX_SCHEMA, RUN_FILE, TENSORS_SCHEMA
from ..storage import Storage
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

    @property
    def chunks(self) -> list[str]:
        return list(dict.fromkeys(chunk for file in self.files for chunk in file.summary.chunks))


class Source:
    """One run, as it is when this is made: steps that come later are not in it."""

    def __init__(self, run: str, storage: Storage, workers: Sequence[str]) -> None:
        self.run = run
        self.identity = _identity(storage)
        self._storage = storage
        self._workers = workers
        self.damaged: dict[str, FileError] = {}
        """By the whole path of the file."""
        self.look_again()

    def look_again(self) -> None:
        """List the files anew: those that are there now, and steps that have come."""
        seen = IndexFiles(self._storage)
        self._files = {worker: sorted(seen.look(worker), key=_first_step) for worker in self._workers}
        for path, error in seen.damaged.items():
            self._set_aside(path, error)

    def _set_aside(self, path: str, error: FileError) -> None:
        self.damaged[f"{self._storage.url}/{path}"] = error

    def parts(self, table: str, held: Held | None, since: Since = None) -> Iterator[Part]:
        """What a target lacks of a table, worker by worker, in the order of steps."""
        for worker in self._files:
            after = held.last_step.get(Position(table, worker), -1) if held else -1
            for files in self._new_files(worker, after):
                yield self._part(table, worker, after, files, since)
                after = files.last_step

    def rows(self, table: str, held: Held | None) -> int:
        """How many index rows the parts of a table are made of."""
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
        schema, span = GROWING[table], _Span(after, group.last_step, since)

        def batches() -> Iterator[pa.RecordBatch]:
            for rows in self._rows(table, worker, group, span):
                yield from with_run(self.run, rows, schema)

        return Part(table, self.run, self.identity, worker, after, group.last_step, schema, batches)

    def _rows(self, table: str, worker: str, group: _Group, span: _Span) -> Iterator[pa.Table]:
        if table == "steps":
            yield _steps(worker, group, span)
        elif table == "tensor_values":
            yield from self._values(worker, group, span)
        else:
            yield from map(OF_INDEX[table], self._index(group, span))

    def _index(self, group: _Group, span: _Span) -> Iterator[pa.Table]:
        for file in group.files:
            try:
                yield span.of(read_rows(file.path, self._storage.read(file.path)))
            except CorruptFile as exc:
                self._set_aside(file.path, exc)

    def _values(self, worker: str, group: _Group, span: _Span) -> Iterator[pa.Table]:
        """Raw values of the steps that the index files name. A chunk may hold others, which were never published."""
        published = pa.array(sorted(span.steps(group)), pa.int64())
        for chunk in group.chunks:
            try:
                for rows in _row_groups(chunk, self._storage.read(chunk)):
                    kept = pc.and_(pc.is_in(rows["global_step"], published), pc.equal(rows["worker"], worker))
                    yield rows.filter(kept)
            except CorruptFile as exc:
                self._set_aside(chunk, exc)
            except FileNotFoundError:
                self._set_aside(chunk, MissingChunk(chunk, "the index names this chunk, and it is not there"))


@dataclass(frozen=True)
class _Span:
    """Which rows are wanted: those of global steps after one and up to another, and since a step or a time."""

    after: int
    last: int
    since: Since

    def of(self, index: pa.Table) -> pa.Table:
        steps = index["global_step"]
        kept = pc.and_(pc.greater(steps, self.after), pc.less_equal(steps, self.last))
        if isinstance(self.since, datetime):
            kept = pc.and_(kept, pc.greater_equal(index["saved_at"], pa.scalar(_utc(self.since), _TIME)))
        elif self.since is not None:
            kept = pc.and_(kept, pc.greater_equal(steps, self.since))
        return index.filter(kept)

    def steps(self, group: _Group) -> set[int]:
        return {step.global_step for file in group.files for step in file.summary.steps if self.has(step)}

    def has(self, step: StepSummary) -> bool:
        if isinstance(self.since, datetime):
            since = step.saved_at >= _utc(self.since).timestamp() * 1e6
        else:
            since = self.since is None or step.global_step >= self.since
        return since and self.after < step.global_step <= self.last


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _steps(worker: str, group: _Group, span: _Span) -> pa.Table:
    """The steps, which the summaries of the index files tell without reading their rows."""
    found = [
        (step.mode, step.mode_step, step.global_step, worker, step.saved_at, len(file.summary.name_sets[step.names]))
        for file in group.files
        for step in file.summary.steps
        if span.has(step)
    ]
    schema = GROWING["steps"].remove(0)
    columns = list(zip(*found, strict=True)) or [() for _ in schema]
    return pa.table([pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)], schema=schema)


def _identity(storage: Storage) -> str:
    """A run.json is written once, and says when to the microsecond."""
    return hashlib.sha256(storage.read(RUN_FILE)).hexdigest()[:16]


def _first_step(file: NewFile) -> int:
    return min((step.global_step for step in file.summary.steps), default=-1)


def _last_step(file: NewFile) -> int:
    return max((step.global_step for step in file.summary.steps), default=-1)


def _row_groups(path: str, data: bytes) -> Iterator[pa.Table]:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, columns=TENSORS_SCHEMA.names).select(TENSORS_SCHEMA.names)
    except (pa.ArrowException, OSError) as exc:
        raise CorruptFile(path, f"its values cannot be read: {exc}") from exc
