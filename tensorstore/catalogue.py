"""The catalogue of a run: small DuckDB tables of its files, steps and names, and views over its Parquet files.

The only module that talks to DuckDB.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from tensortrial.queries import load

from .errors import CorruptFile, FileError, QueryRefused, StorageError
from .index import IndexSummary, NamedTensor, SavedTensor, read_summary
from .schema import INDEX, INDEX_SCHEMA, TENSORS, TENSORS_SCHEMA, index_folder
from .storage import Storage

logger = logging.getLogger(__name__)

# Enough for the footer of most flushes; a longer one costs a second read.
_TAIL_BYTES = 64 << 10
_CACHED_BLOCKS = 64
_VIEWS = ("reductions", "scalars", "steps", "collections")

Rows = list[tuple[Any, ...]]
StepRange = tuple[int | None, int | None]
Block = dict[Any, list[SavedTensor]]
_T = TypeVar("_T")

_STEPS = pa.schema(
    [
        ("file_id", pa.int32()),
        ("worker", pa.string()),
        ("mode", pa.string()),
        ("mode_step", pa.int64()),
        ("global_step", pa.int64()),
        ("saved_at", pa.timestamp("us", tz="UTC")),
        ("name_set", pa.int32()),
    ]
)


class Catalogue:
    """What is in a run, as of the last `refresh`. Safe to use from several threads.

    `range_steps` (a, b) leaves out every global step outside a <= step < b.
    """

    def __init__(self, storage: Storage, range_steps: StepRange | None = None) -> None:
        self._storage = storage
        self._first, self._end = range_steps or (None, None)
        self._lock = threading.RLock()
        self._connection = _connect(storage)
        self._connection.execute(load("catalogue"))
        self._last_file: dict[str, str] = {}
        self._files = 0
        self._name_ids: dict[NamedTensor, int] = {}
        self._name_sets: dict[tuple[NamedTensor, ...], int] = {}
        self._chunks: set[str] = set()
        self._answers: dict[tuple[Any, ...], Rows] = {}
        self._derived: dict[tuple[Any, ...], Any] = {}
        self._blocks: OrderedDict[tuple[str, Any], Block] = OrderedDict()
        self._last_name: str | None = None
        self._views_of_version: int | None = None
        self.version = 0
        """Grows with each refresh that found something new."""
        self.damaged: dict[str, FileError] = {}
        """Index files that could not be read, and why. The rest of the run is there."""

    def refresh(self, workers: Iterable[str]) -> bool:
        """Read the index files that are new since the last time. True if there were any."""
        with self._lock:
            worker_of = {path: worker for worker in workers for path in self._new_files(worker)}
            if not worker_of:
                return False
            found = [(worker_of[path], path, summary) for path, summary in self._summaries(list(worker_of))]
            self._insert(found)
            self.changed()
            return True

    def changed(self) -> None:
        """Forget what was answered: something is new."""
        with self._lock:
            self.version += 1
            self._answers.clear()
            self._derived.clear()
            self._blocks.clear()

    def ask(self, question: str, **parameters: Any) -> Rows:
        """The rows that answer a question about the small tables. Answers are kept until something is new."""
        key = (question, *parameters.items())
        with self._lock:
            rows = self._answers.get(key)
            if rows is None:
                rows = self._answers[key] = self._execute(load(question), parameters).fetchall()
            return rows

    def derived(self, key: tuple[Any, ...], make: Callable[[], _T]) -> _T:
        """What `make` makes of answers, kept until something is new."""
        with self._lock:
            if key not in self._derived:
                self._derived[key] = make()
            return self._derived[key]  # type: ignore[no-any-return]

    def rows(self, name: str, global_step: int) -> list[SavedTensor]:
        """Everything the index says of one tensor at one step, one row a worker.

        One query reads a whole step or all steps of a tensor. Which of them pays depends on what is asked next: who asks
        for another step of the same tensor is taken to go through its steps.
        """
        with self._lock:
            of_tensor, of_step = ("steps_of_tensor", name), ("tensors_of_step", global_step)
            if of_tensor in self._blocks or (of_step not in self._blocks and self._last_name == name):
                return self._block("steps_of_tensor", "files_of_tensor", name=name).get(global_step, [])
            self._last_name = name
            return self._block("tensors_of_step", "files_of_step", step=global_step).get(name, [])

    def steps_of_tensor(self, name: str) -> list[SavedTensor]:
        """Everything the index says of one tensor, at every step and of every worker."""
        block = self._block("steps_of_tensor", "files_of_tensor", name=name)
        return [row for global_step, rows in block.items() if self._in_range(global_step) for row in rows]

    def set_collections(self, rows: Sequence[Sequence[Any]]) -> None:
        """What each worker was told to save, as rows of the view `collections`."""
        with self._lock:
            self._execute("delete from catalogue.collections", {})
            for row in rows:
                self._execute("insert into catalogue.collections values (?, ?, ?, ?, ?, ?, ?, ?)", list(row))

    def sql(self, query: str, parameters: dict[str, Any] | None = None) -> duckdb.DuckDBPyRelation:
        """The answer to the user's query on the views of the run. Raises QueryRefused for anything but one SELECT."""
        with self._lock:
            self._make_views()
            # A cursor of its own: a relation is evaluated lazily, while the catalogue goes on asking.
            cursor = self._connection.cursor()
            _refuse_all_but_select(cursor, query)
            return cursor.sql(query, params=parameters)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # New files.

    def _new_files(self, worker: str) -> list[str]:
        folder = index_folder(worker)
        after = self._last_file.get(worker, "")
        paths = [path for path in self._storage.list_after(folder, after) if path.endswith(".parquet")]
        if paths:
            self._last_file[worker] = paths[-1][len(folder) + 1 :]
        return paths

    def _summaries(self, paths: list[str]) -> Iterator[tuple[str, IndexSummary]]:
        for path, tail in zip(paths, self._storage.read_tails(paths, _TAIL_BYTES), strict=True):
            try:
                if isinstance(tail, Exception):
                    raise tail
                summary = read_summary(path, *tail)
                if isinstance(summary, int):
                    summary = read_summary(path, *self._storage.read_tail(path, summary))
                assert isinstance(summary, IndexSummary)
                yield path, summary
            except FileError as exc:
                self._set_aside(path, exc)
            except FileNotFoundError as exc:
                self._set_aside(path, StorageError(path, f"it was listed and is gone: {exc}"))

    def _set_aside(self, path: str, error: FileError) -> None:
        self.damaged[path] = error
        logger.warning("run %s: left out, the rest is readable: %s", self._storage.url, error)

    def _insert(self, found: Sequence[tuple[str, str, IndexSummary]]) -> None:
        files, steps, names, name_sets, chunks = [], [], [], [], []
        for worker, path, summary in found:
            kept = [step for step in summary.steps if self._in_range(step.global_step)]
            if not kept:
                continue
            self._files += 1
            files.append((self._files, path, worker, summary.rows, kept[0].global_step, kept[-1].global_step))
            ids = [self._name_set_id(tensors, names, name_sets) for tensors in summary.name_sets]
            for mode, mode_step, global_step, saved_at, name_set in kept:
                steps.append((self._files, worker, mode, mode_step, global_step, saved_at, ids[name_set]))
            # The order of a list of chunks is that of the steps, for the engine's sake.
            new_chunks = [chunk for chunk in summary.chunks if chunk not in self._chunks]
            self._chunks.update(new_chunks)
            chunks += [(chunk,) for chunk in new_chunks]
        with self._transaction():
            self._append("files", files)
            self._append("names", names)
            self._append("name_sets", name_sets)
            self._append("chunks", chunks)
            self._append("steps", steps, _STEPS)

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

    # DuckDB.

    def _append(self, table: str, rows: Rows, schema: pa.Schema | None = None) -> None:
        if not rows:
            return
        columns = [list(column) for column in zip(*rows, strict=True)]
        names = schema.names if schema else [f"c{i}" for i in range(len(columns))]
        arrays = [pa.array(column, schema.field(i).type if schema else None) for i, column in enumerate(columns)]
        self._connection.register("new_rows", pa.Table.from_arrays(arrays, names=names))
        try:
            self._execute(f"insert into catalogue.{table} select * from new_rows", {})
        finally:
            self._connection.unregister("new_rows")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.begin()
        try:
            yield
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def _execute(self, statement: str, parameters: Any) -> duckdb.DuckDBPyConnection:
        """Every statement of the catalogue passes here."""
        logger.debug("%s %s", statement, parameters)
        return self._connection.execute(statement, parameters)

    def _block(self, question: str, which_files: str, **key: Any) -> Block:
        """The rows that answer a question about the index, grouped by the other half of their key."""
        (value,) = key.values()
        with self._lock:
            block = self._blocks.get((question, value))
            if block is None:
                paths = [row[-1] for row in self.ask(which_files, **key)]
                block = {}
                for row in self._read_index(question, paths, key):
                    block.setdefault(row.name if "step" in key else row.global_step, []).append(row)
                self._blocks[question, value] = block
                if len(self._blocks) > _CACHED_BLOCKS:
                    self._blocks.popitem(last=False)
            else:
                self._blocks.move_to_end((question, value))
            return block

    def _read_index(self, question: str, paths: list[str], key: dict[str, Any]) -> list[SavedTensor]:
        if not paths:
            return []
        uris = [self._storage.uri(path) for path in paths]
        try:
            rows = self._execute(load(question), {"paths": uris, **key}).fetchall()
        except duckdb.Error as exc:
            raise CorruptFile(_named_in(str(exc), paths), f"its rows cannot be read: {exc}") from exc
        return [SavedTensor(*row) for row in rows]

    # Views.

    def _make_views(self) -> None:
        if self._views_of_version == self.version:
            return
        index = [path for _, path in self._execute("select file_id, path from catalogue.files order by 1", {}).fetchall()]
        chunks = [path for (path,) in self._execute("select path from catalogue.chunks", {}).fetchall()]
        self._view_over_files("tensors", index, INDEX_SCHEMA)
        self._view_over_files("tensor_values", self._readable(chunks), TENSORS_SCHEMA)
        for view in _VIEWS:
            self._execute(load(f"view_{view}"), {})
        self._views_of_version = self.version

    def _view_over_files(self, view: str, paths: list[str], schema: pa.Schema) -> None:
        if not paths:
            self._connection.from_arrow(schema.empty_table()).create(f"no_{view}") if not self._exists(f"no_{view}") else None
            self._execute(f"create or replace view {view} as from no_{view}", {})
            return
        uris = [self._storage.uri(path) for path in paths]
        relation = self._connection.read_parquet(uris, hive_partitioning=False)
        # An index file holds whole steps; the range is of steps.
        if self._first is not None:
            relation = relation.filter(f"global_step >= {int(self._first)}")
        if self._end is not None:
            relation = relation.filter(f"global_step < {int(self._end)}")
        relation.create_view(view, replace=True)

    def _exists(self, table: str) -> bool:
        found = self._execute("select 1 from information_schema.tables where table_name = ?", [table]).fetchall()
        return bool(found)

    def _readable(self, chunks: list[str]) -> list[str]:
        """Chunks that are there and whole: one bad file would make the view useless for all."""
        kept = []
        for path, tail in zip(chunks, self._storage.read_tails(chunks, 8), strict=True):
            if not isinstance(tail, Exception) and tail[0][-4:] == b"PAR1":
                kept.append(path)
            elif path not in self.damaged:
                self._set_aside(path, CorruptFile(path, f"this chunk is torn or missing: {tail if isinstance(tail, Exception) else ''}"))
        return kept


def _connect(storage: Storage) -> duckdb.DuckDBPyConnection:
    """A connection that can read the run, and nothing else: no other file, no network, no extension."""
    connection = duckdb.connect(":memory:")
    if storage.duckdb_filesystem is not None:
        connection.register_filesystem(storage.duckdb_filesystem)
    # DuckDB checks a path as a pattern and as it is: `uri` escapes brackets and stars, the url has them plain.
    folders = {f"{base}/" for room in (INDEX, TENSORS) for base in (storage.uri(room), f"{storage.url}/{room}")}
    # SET takes no parameters; a list literal with doubled quotes holds any path.
    quoted = ", ".join("'" + folder.replace("'", "''") + "'" for folder in sorted(folders))
    for statement in (
        "set temp_directory = ''",
        f"set allowed_directories = [{quoted}]",
        # Otherwise a query could read the variables of the Python program by their names.
        "set python_enable_replacements = false",
        "set enable_external_access = false",
        "set lock_configuration = true",
    ):
        connection.execute(statement)
    return connection


def _refuse_all_but_select(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as exc:
        raise QueryRefused(f"this is not SQL that DuckDB understands: {exc}") from exc
    kinds = [statement.type for statement in statements]
    if kinds != [duckdb.StatementType.SELECT]:
        found = ", ".join(str(kind).rpartition(".")[2] for kind in kinds) or "nothing"
        raise QueryRefused(f"only one SELECT is run on a run's views, and this is {found}: {query.strip()[:200]!r}")


def _named_in(message: str, paths: Sequence[str]) -> str:
    """The path that a DuckDB message speaks of."""
    return next((path for path in paths if path in message), paths[0])


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
