"""The catalogue of a run: small tables in an engine, of its files, steps and names, and views over its files."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from ..engines.base import Answer, Engine, FilesView, Rows, RunFile
from ..engines.duckdb import DuckDBEngine
from ..errors import CorruptFile, FileError
from ..format import arrow_arrays
from ..format.index_log import IndexFiles, NewFile
from ..format.index_reader import IndexRows
from ..format.index_types import NamedTensor, SavedTensor
from ..format.schema import FINDINGS, FINDINGS_SCHEMA, INDEX_SCHEMA, TENSORS_SCHEMA
from ..storage.open import Storage
from .readable_files import ReadableFiles

_CACHED_BLOCKS = 64
# Well below the time that files are kept after they were compacted.
_LISTED_SECONDS = 20.0
_VIEWS = ("reductions", "scalars", "steps", "collections")

StepRange = tuple[int | None, int | None]
_T = TypeVar("_T")


@dataclass(slots=True)
class _Block:
    """The rows of one tensor, or of one step, as far as they were read."""

    rows: dict[Any, list[SavedTensor]] = field(default_factory=dict)
    """By global step, or, of one step, by name."""
    last_file: int = -1
    version: int = -1


_TEXTS = pa.list_(pa.string())
_TABLES = {
    # Index files, one a flush.
    "files": pa.schema(
        [
            ("file_id", pa.int32()),
            ("path", pa.string()),
            ("worker", pa.string()),
            ("num_rows", pa.int64()),
            ("first_step", pa.int64()),
            ("last_step", pa.int64()),
        ]
    ),
    # Files of raw values that the index names.
    "chunks": pa.schema([("index_path", pa.string()), ("path", pa.string())]),
    # Tensors, with the collections they are part of.
    "names": pa.schema([("name_id", pa.int32()), ("name", pa.string()), ("collections", _TEXTS)]),
    # Most steps hold the same tensors: a step refers to a set of names.
    "name_sets": pa.schema([("name_set", pa.int32()), ("name_id", pa.int32())]),
    "steps": pa.schema(
        [
            ("file_id", pa.int32()),
            ("worker", pa.string()),
            ("mode", pa.string()),
            ("mode_step", pa.int64()),
            ("global_step", pa.int64()),
            ("saved_at", pa.timestamp("us")),
            ("name_set", pa.int32()),
        ]
    ),
    # The workers that will write no more.
    "ended": pa.schema([("worker", pa.string())]),
    # What each worker was told to save.
    "collections": pa.schema(
        [
            ("worker", pa.string()),
            ("name", pa.string()),
            ("saved", pa.bool_()),
            ("include_regex", _TEXTS),
            ("tensor_names", _TEXTS),
            ("save_config", pa.string()),
            ("reduction_config", pa.string()),
            ("save_histogram", pa.bool_()),
        ]
    ),
}


class Catalogue:
    """What is in a run, as of the last `refresh`. Safe to use from several threads.

    `range_steps` (a, b) leaves out every global step outside a <= step < b.
    """

    def __init__(self, storage: Storage, range_steps: StepRange | None = None, engine: Engine | None = None) -> None:
        self._storage = storage
        self._first, self._end = range_steps or (None, None)
        self._lock = threading.RLock()
        self.database = (engine or DuckDBEngine()).connect([storage])
        self.database.create(_TABLES)
        self._index_files = IndexFiles(storage)
        self._replacing: list[NewFile] = []
        self._listed_at = time.monotonic()
        self._files = 0
        self._name_ids: dict[NamedTensor, int] = {}
        self._name_sets: dict[tuple[NamedTensor, ...], int] = {}
        self._answers: dict[tuple[Any, ...], Rows] = {}
        self._derived: dict[tuple[Any, ...], Any] = {}
        self._index_rows = IndexRows(storage)
        self._files_check = ReadableFiles(storage)
        self._blocks: OrderedDict[tuple[str, Any, bool], _Block] = OrderedDict()
        self._last: tuple[str, int] | None = None
        self._views_of_version: int | None = None
        self._values_of_version: int | None = None
        self._findings: list[str] | None = None
        self.version = 0
        """Grows with each refresh that found something new."""

    def refresh(self, workers: Iterable[str]) -> bool:
        """Read the index files that are new since the last time. True if there were any."""
        with self._lock:
            known = self.version
            self._add(self._replacing)
            self._replacing = []
            for worker in workers:
                found = self._index_files.look(worker)
                self._replace(found)
                self._add(found)
            return self.version > known

    def changed(self) -> None:
        """Forget what was answered: something is new."""
        with self._lock:
            self.version += 1
            self._answers.clear()
            self._derived.clear()

    def ask(self, question: str, **parameters: Any) -> Rows:
        """The rows that answer a question about the small tables. Answers are kept until something is new."""
        key = (question, *parameters.values())
        with self._lock:
            rows = self._answers.get(key)
            if rows is None:
                rows = self._answers[key] = self.database.rows(question, parameters)
            return rows

    def derived(self, key: tuple[Any, ...], make: Callable[[], _T]) -> _T:
        """What `make` makes of answers, kept until something is new."""
        with self._lock:
            if key not in self._derived:
                self._derived[key] = make()
            return self._derived[key]  # type: ignore[no-any-return]

    def rows(self, name: str, global_step: int, statistics: bool = False) -> list[SavedTensor]:
        """What the index says of one tensor at one step, one row a worker; with its `statistics` only if asked for.

        Who asks for another step of the same tensor is taken to go through its steps, and who asks for another tensor
        of the same step to go through those: then all of them are read.
        """
        if not self._in_range(global_step):
            return []
        with self._lock:
            last, self._last = self._last, (name, global_step)
            of_tensor, of_step = ("tensor", name, statistics), ("step", global_step, statistics)
            if of_step in self._blocks or (last and last[1] == global_step and of_tensor not in self._blocks):
                return self._block(*of_step).get(name, [])
            if of_tensor in self._blocks or (last and last[0] == name):
                # One bad file spoils all steps of a tensor, and none but its own if they are asked for one by one.
                with suppress(CorruptFile):
                    return self._block(*of_tensor).get(global_step, [])
            return self._one(name, global_step, statistics)

    def rows_of_step(self, global_step: int) -> dict[str, list[SavedTensor]]:
        """What the index says of every tensor at one step, with statistics: by name, one row a worker."""
        if not self._in_range(global_step):
            return {}
        with self._lock:
            return self._block("step", global_step, statistics=True)

    def steps_of_tensor(self, name: str) -> list[SavedTensor]:
        """Where the values of one tensor are, at every step and of every worker."""
        with self._lock:
            block = self._block("tensor", name)
            return [row for step, rows in block.items() if self._in_range(step) for row in rows]

    def steps_of_tensors(self, names: Sequence[str]) -> list[SavedTensor]:
        """The same of several tensors, in one pass over the index."""
        if len(names) == 1:
            return self.steps_of_tensor(names[0])
        with self._lock:
            files = self.database.rows("files_of_tensors", {"names": list(names)})
            try:
                rows = self._index_rows.read(_distinct(files), names)
            except CorruptFile:
                if not self._recover():
                    raise
                return self.steps_of_tensors(names)
            return [row for row in rows if self._in_range(row.global_step)]

    def found_again(self, rows: Sequence[SavedTensor]) -> list[SavedTensor]:
        """What the index says of the same tensors now, after a chunk was found missing: its values may have been put
        into another one meanwhile."""
        with self._lock:
            self._recover()
            by_worker = ({each.worker: each for each in self.rows(row.name, row.global_step)} for row in rows)
            return [now.get(row.worker, row) for row, now in zip(rows, by_worker, strict=True)]

    def set_collections(self, rows: Sequence[Sequence[Any]]) -> None:
        """What each worker was told to save, as rows of the view `collections`."""
        with self._lock:
            self.database.put("collections", arrow_arrays.table(_TABLES["collections"], rows))

    def set_ended(self, workers: Sequence[str]) -> None:
        """Set which workers will write no more."""
        with self._lock:
            self.database.put("ended", arrow_arrays.table(_TABLES["ended"], [(worker,) for worker in workers]))
            self.changed()

    def sql(self, query: str, parameters: dict[str, Any] | None = None, timeout: float | None = None) -> Answer:
        """The answer to the user's query on the views of the run. Raises QueryRefused for anything but one SELECT, and
        QueryError for one that the engine cannot run."""
        with self._lock:
            self._make_views()
            # Their files are looked at anew, which nobody needs who asks for neither.
            if "findings" in query.lower():
                self._make_findings_view()
            if "tensor_values" in query.lower():
                self._make_values_view()
            return self.database.sql(query, parameters, timeout)

    def close(self) -> None:
        with self._lock:
            self.database.close()

    # New files.

    @property
    def damaged(self) -> dict[str, FileError]:
        """Index files that could not be read, and why. The rest of the run is there."""
        return self._index_files.damaged

    def _recover(self) -> bool:
        """After files were found missing or spoilt: learn which were compacted meanwhile. True if any of those known
        were. What is new in the files that replace them waits for the next refresh."""
        with self._lock:
            found = self._index_files.look_again()
            self._replacing += found
            return self._replace(found)

    def _replace(self, found: Sequence[NewFile]) -> bool:
        """Read the rows of files that were compacted from the file that holds them now."""
        replaced = [(file.path, file.replaces) for file in found if file.replaces]
        for path, before in replaced:
            self.database.update("files", "path", before, path)
            self.database.delete("chunks", "index_path", before)
        self._append("chunks", [(file.path, chunk) for file in found if file.replaces for chunk in file.summary.chunks])
        if replaced:
            # Their rows are in another order now, and beside rows that are not known yet.
            self._blocks.clear()
            self.changed()
        return bool(replaced)

    def _add(self, found: Sequence[NewFile]) -> None:
        """Take in the steps of new files."""
        files, steps, chunks = list[tuple[Any, ...]](), list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        names, name_sets = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        for worker, path, summary, replaces in found:
            known = self._steps_in(path) if replaces else frozenset()
            kept = [
                step for step in summary.steps if self._in_range(step.global_step) and step.global_step not in known
            ]
            if not kept:
                continue
            self._files += 1
            files.append((self._files, path, worker, summary.rows, kept[0].global_step, kept[-1].global_step))
            ids = {
                number: self._name_set_id(summary.name_sets[number], names, name_sets)
                for number in sorted({step.names for step in kept})
            }
            for mode, mode_step, global_step, saved_at, name_set in kept:
                steps.append((self._files, worker, mode, mode_step, global_step, saved_at, ids[name_set]))
            if not replaces:
                chunks += [(path, chunk) for chunk in summary.chunks]
        if not found:
            return
        with self.database.transaction():
            self._append("files", files)
            self._append("names", names)
            self._append("name_sets", name_sets)
            self._append("chunks", chunks)
            self._append("steps", steps)
        self.changed()

    def _steps_in(self, path: str) -> frozenset[int]:
        """The global steps that are known of a file: those of the files whose place it took."""
        return frozenset(step for (step,) in self.database.rows("steps_of_file", {"path": path}))

    def _name_set_id(self, tensors: tuple[NamedTensor, ...], names: Rows, name_sets: Rows) -> int:
        number = self._name_sets.get(tensors)
        if number is None:
            number = self._name_sets[tensors] = len(self._name_sets)
            for tensor in tensors:
                name_id = self._name_ids.get(tensor)
                if name_id is None:
                    name_id = self._name_ids[tensor] = len(self._name_ids)
                    names.append((name_id, tensor.name, list(tensor.collections)))
                name_sets.append((number, name_id))
        return number

    def _in_range(self, step: int) -> bool:
        return (self._first is None or step >= self._first) and (self._end is None or step < self._end)

    # Rows.

    def _append(self, table: str, rows: Rows) -> None:
        if rows:
            self.database.append(table, arrow_arrays.table(_TABLES[table], rows))

    def _block(self, of: str, key: Any, statistics: bool = False) -> dict[Any, list[SavedTensor]]:
        """The rows of a "tensor", by step, or of a "step", by name. What was read stays read: when the run has grown,
        only its new files are looked at."""
        block = self._blocks.setdefault((of, key, statistics), _Block())
        self._blocks.move_to_end((of, key, statistics))
        if block.version != self.version:
            known = self.ask("files_of_tensor", name=key) if of == "tensor" else self.ask("files_of_step", step=key)
            files = [each for each in known if each[0] > block.last_file]
            names, step = ([key], None) if of == "tensor" else (None, key)
            try:
                rows = self._index_rows.read(_distinct(files), names, step, statistics)
            except CorruptFile:
                if not self._recover():
                    raise
                return self._block(of, key, statistics)
            for row in rows:
                block.rows.setdefault(row.global_step if of == "tensor" else row.name, []).append(row)
            block.last_file = max((number for number, _ in files), default=block.last_file)
            block.version = self.version
            if len(self._blocks) > _CACHED_BLOCKS:
                self._blocks.popitem(last=False)
        return block.rows

    def _one(self, name: str, step: int, statistics: bool) -> list[SavedTensor]:
        """The rows of one tensor at one step, without a question to the engine."""

        def spans() -> tuple[list[str], Any, Any]:
            paths, first, last = zip(*self.ask("spans_of_files"), strict=True)
            return list(paths), np.array(first), np.array(last)

        if not self._files:
            return []
        paths, first, last = self.derived(("spans",), spans)
        around = np.flatnonzero((first <= step) & (step <= last))
        try:
            return self._index_rows.read([paths[place] for place in around.tolist()], [name], step, statistics)
        except CorruptFile:
            if not self._recover():
                raise
            return self._one(name, step, statistics)

    # Views.

    def _make_views(self) -> None:
        self._look_for_compacted()
        if self._views_of_version == self.version:
            return
        index = [path for (path,) in self.database.rows("index_paths", {})]
        index = self._readable(index, INDEX_SCHEMA, new=True)
        self._view_over_files("tensors", index, INDEX_SCHEMA, "saved_at")
        for view in _VIEWS:
            self.database.make_view(f"view_{view}")
        self._views_of_version = self.version

    def _look_for_compacted(self) -> None:
        """Files that were compacted are deleted after a while, and an engine that looks for them in vain cannot be
        helped: so a query is given the files that there are now. A listing of objects is not asked for each time."""
        now = time.monotonic()
        if self._storage.is_local or now - self._listed_at > _LISTED_SECONDS:
            self._recover()
            self._listed_at = now

    def _make_values_view(self) -> None:
        if self._values_of_version == self.version:
            return
        # In the order of the steps, for the engine's sake. A chunk may be named by two flushes.
        chunks = list(dict.fromkeys(path for (path,) in self.database.rows("chunk_paths", {})))
        self._view_over_files("tensor_values", self._readable(chunks, TENSORS_SCHEMA), TENSORS_SCHEMA)
        self._values_of_version = self.version

    def _make_findings_view(self) -> None:
        """Rules of other processes write findings at any time: their files are listed anew for each query."""
        paths = [f"{FINDINGS}/{name}" for name in self._storage.list(FINDINGS) if name.endswith(".parquet")]
        if paths == self._findings:
            return
        files = self._readable(paths, FINDINGS_SCHEMA)
        self._view_over_files("finding_files", files, FINDINGS_SCHEMA, "found_at", "step", public=False)
        self.database.make_view("view_findings")
        self._findings = paths

    def _view_over_files(
        self,
        view: str,
        paths: list[str],
        schema: pa.Schema,
        time: str = "",
        step: str = "global_step",
        public: bool = True,
    ) -> None:
        files = [RunFile(self._storage, path) for path in paths]
        described = FilesView(view, schema, time, step, self._first, self._end, public=public)
        self.database.make_files_view(described, files)

    def _readable(self, paths: list[str], schema: pa.Schema, new: bool = False) -> list[str]:
        """Files that are there and whole: one bad file would make the view useless for all."""
        kept = []
        for path, error in (self._files_check.check_new if new else self._files_check.check)(paths, schema):
            if error is None:
                kept.append(path)
            else:
                self._index_files.set_aside(path, error)
        return kept


def _distinct(files: Rows) -> list[str]:
    """The paths of files: a compacted one holds what several files held."""
    return list(dict.fromkeys(path for _, path in files))


def collection_row(worker: str, saved: Sequence[str], document: dict[str, Any]) -> tuple[Any, ...]:
    """A row of the view `collections` from a collection's JSON document."""
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
