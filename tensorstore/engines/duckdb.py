"""The embedded engine, DuckDB: a database in memory that can read some runs, but no other file and no network."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import duckdb
import pyarrow as pa

from tensortrial.queries import load_view

from .. import forking
from ..errors import ConfigurationError, EngineOutOfMemory, QueryError, QueryRefused, RunClosed
from ..format import arrow_arrays
from ..format.schema import FINDINGS, HISTOGRAM, INDEX, SKETCH, TENSORS
from ..format.verified_files import VerifiedFiles, verified_files
from ..storage.base import check_path
from ..storage.foreign_errors import missing
from ..storage.open import Storage
from . import user_sql
from .base import Database, FilesView, Rows, RunFile, UserQuery
from .duckdb_answer import PROTOCOL, DuckDBAnswer, query_errors
from .interrupting import deadline_of, keyboard_interrupts
from .memory_limit import ENVIRONMENT_VARIABLE, default_memory_limit, threads_within_limit

logger = logging.getLogger(__name__)

_TYPES = {
    pa.bool_(): "boolean",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.uint64(): "ubigint",
    pa.float64(): "double",
    pa.binary(): "blob",
    pa.list_(pa.string()): "varchar[]",
    pa.list_(pa.int64()): "bigint[]",
    pa.string(): "varchar",
    pa.timestamp("us", tz="UTC"): "timestamp with time zone",
    HISTOGRAM: "struct(edges double[], counts bigint[])",
    SKETCH: 'struct("values" double[], counts bigint[])',
}

_FILES = pa.schema([(name, pa.string()) for name in ("filename", "run", "path")])
_FOLDERS = frozenset({INDEX, TENSORS, FINDINGS})
_KEPT_QUERIES = 64
"""The most queries that are cached with the views and columns that they read."""
_CLOSE_SECONDS = 10.0
_POLL_SECONDS = 0.01

_open: weakref.WeakSet[DuckDBDatabase] = weakref.WeakSet()


class DuckDBEngine:
    """The default engine.

    Args:
        memory_limit: The memory limit of queries, such as "8GB"; None for the value of TENSORTRIAL_MEMORY_LIMIT, or a
            quarter of the memory of this process, 4 GiB at most.
        temporary_disk: The limit of disk space for data that does not fit into memory, such as "20GB"; None to use no
            disk. The files are below the system's temporary folder until the end.
    """

    def __init__(self, memory_limit: str | None = None, temporary_disk: str | None = None) -> None:
        self.memory_limit = memory_limit
        self.temporary_disk = temporary_disk

    def connect(self, storages: Sequence[Storage]) -> Database:
        """Open a new database in memory.

        Args:
            storages: The runs that it can read.

        Returns:
            The database.
        """
        return DuckDBDatabase(storages, self.memory_limit, self.temporary_disk)


class DuckDBDatabase(Database):
    """A database in memory."""

    def __init__(
        self, storages: Sequence[Storage], memory_limit: str | None = None, temporary_disk: str | None = None
    ) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = _connect(memory_limit)
        self._cursors: weakref.WeakSet[duckdb.DuckDBPyConnection] = weakref.WeakSet()
        self._busy: list[duckdb.DuckDBPyConnection] = []
        self._lock = threading.Lock()
        self._files = RunFiles(storages)
        self._locked = False
        self._parsed: dict[tuple[str, tuple[str, ...]], UserQuery] = {}
        self._described: dict[str, list[tuple[str, str]]] = {}
        """The columns and their types of queries that were bound since the views were made."""
        self._without_run: dict[str, str] = {}
        """The SELECT of each view over files, without the column `run`."""
        self._pending: dict[str, str] = {}
        """The statements that make views over files in `catalogue`, by view, until a statement reads the view."""
        self._temporary = tempfile.mkdtemp(prefix="tensortrial-") if temporary_disk else None
        # For data that does not fit into memory. SET takes no parameters; a literal with doubled quotes holds any path.
        for name, value in (("temp_directory", self._temporary or ""), ("max_temp_directory_size", temporary_disk)):
            if value is not None:
                self.execute(f"set {name} = {_text(value)}")
        self.execute("create schema catalogue")
        _open.add(self)

    def _lock_down(self) -> None:
        """Allow access to nothing but the files of the runs.

        This is called before the first of them is read, and before any query of a user. It is not called earlier,
        because the filesystem needs fsspec, whose import takes 0.1 s, and because DuckDB treats a directory's name as
        local until the filesystem is registered.
        """
        if self._locked:
            return
        with self._errors():
            self._duckdb.register_filesystem(self._files.filesystem)
        for statement in (
            # Otherwise DuckDB would search the user's folders for an extension with an unknown function.
            "set autoinstall_known_extensions = false",
            "set autoload_known_extensions = false",
            # Otherwise a query could read the variables of the Python program by their names.
            "set python_enable_replacements = false",
            # DuckDB reads all files through RunFiles, which cannot write.
            f"set allowed_directories = ['{PROTOCOL}://']",
            "set enable_external_access = false",
            # The only local folder is the one for data that does not fit into memory.
            *(() if self._temporary else ("set disabled_filesystems = 'LocalFileSystem'",)),
            "set lock_configuration = true",
        ):
            self.execute(statement)
        self._locked = True

    @property
    def _duckdb(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            raise RunClosed
        return self._connection

    def execute(self, statement: str, parameters: Any = None) -> duckdb.DuckDBPyConnection:
        """Run a statement. All statements pass here, except users' queries."""
        for view in [each for each in self._pending if f"catalogue.{each}" in statement]:
            made = self._pending.pop(view)
            try:
                self.execute(made)
            except BaseException:
                self._pending.setdefault(view, made)
                raise
        logger.debug("%s %s", statement, parameters)
        with self._errors():
            return self._duckdb.execute(statement, parameters)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise this project's errors: RunClosed for any error of DuckDB after another thread has closed the run."""
        try:
            with _engine_errors():
                yield
        except duckdb.Error as exc:
            if self._connection is None:
                raise RunClosed from exc
            raise

    # Small tables.

    def put(self, table: str, rows: pa.Table) -> None:
        with self._errors():
            self._duckdb.register("new_rows", rows)
            try:
                self.execute(f"create or replace table catalogue.{table} as from new_rows")
            except BaseException:
                # After a failure, unregistering may fail too, and would hide the reason.
                with suppress(duckdb.Error):
                    self._duckdb.unregister("new_rows")
                raise
            self._duckdb.unregister("new_rows")

    # Queries of this project.

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> Rows:
        """Return the rows of a SELECT of this project. `parameters` are the values of `$name` in it."""
        self._lock_down()
        with query_errors(), self._errors():
            return self.execute(statement, dict(parameters)).fetchall()

    def columns(self, statement: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of a SELECT as numpy arrays, by their names; see `rows`."""
        self._lock_down()
        with query_errors(), self._errors():
            return self.execute(statement, dict(parameters)).fetchnumpy()

    # Views.

    def make_view(self, view: str, with_run: bool) -> None:
        self._described = {}
        text = load_view(view)
        if not with_run:
            # To bind a view of many columns over another one takes longer than to read a small file.
            is_all = text.split()[-4:] == ["select", "*", "from", f"catalogue.{view}"]
            text = self._without_run[view] if is_all else f"select * exclude (run) from (\n{text})"
        with query_errors():  # some views open their files at once
            self.execute(f"create or replace view {view} as {text}")

    def make_files_view(self, view: FilesView, files: Sequence[RunFile]) -> None:
        columns = ", ".join(f'"{name}"' for name in view.schema.names)
        # An index file may hold steps of both sides of the range.
        bounds = [(">=", view.first), ("<", view.end)]
        tests = [f"{view.step} {sign} {int(step)}" for sign, step in bounds if step is not None]
        where = f"where {' and '.join(tests)}" if tests else ""
        run, rows = self._rows_of_files(view, files) if files else ("run", self._no_rows(view))
        self._without_run[view.name] = f"select {columns} from {rows} {where}"
        # To bind all columns takes 3 ms, and most queries read no view of `catalogue`.
        made = f"create or replace view catalogue.{view.name} as select {run}, {columns} from {rows} {where}"
        self._pending[view.name] = made

    def _no_rows(self, view: FilesView) -> str:
        # A real table, because cursors of users' queries do not see registered Arrow tables.
        schema = pa.schema([pa.field("run", pa.string()), *view.schema])
        self.put(f"no_{view.name}", arrow_arrays.table(schema, []))
        return f"catalogue.no_{view.name}"

    def _rows_of_files(self, view: FilesView, files: Sequence[RunFile]) -> tuple[str, str]:
        """Return the expression of the column `run`, and the source of all rows."""
        self._lock_down()
        uris = [self._files.uri(file.storage, file.path) for file in files]
        runs = [file.run for file in files]
        # Reading and binding the list of columns takes 2.5 ms at each query.
        options = "" if all(file.is_exact for file in files) else _schema(view)
        if len(set(runs)) == 1 and view.left_out is None:
            files[0].storage.prefetch([file.path for file in files])
            return f"{_text(runs[0])} as run", _read_parquet(uris, options)
        paths = [file.path for file in files]
        self.put(f"files_of_{view.name}", arrow_arrays.table(_FILES, list(zip(uris, runs, paths, strict=True))))
        if view.left_out is None:
            by_file = _read_parquet(uris, options, "filename = true")
            return "run", f"(from {by_file} join catalogue.files_of_{view.name} using (filename))"
        self.put(f"left_out_of_{view.name}", view.left_out)
        # DuckDB 1.5 cannot number rows when a schema is given.
        by_file = _read_parquet(uris, "union_by_name = true", "filename = true", "file_row_number = true")
        return (
            "run",
            f"""(
            select * from (from {by_file} join catalogue.files_of_{view.name} using (filename)) as found
            anti join catalogue.left_out_of_{view.name} as left_out
            on found.run = left_out.run and found.path = left_out.path and file_row_number = row_of_file
        )""",
        )

    # Users' queries.

    def parse(self, query: str, views: Collection[str]) -> UserQuery:
        self._lock_down()
        if (query, tuple(views)) not in self._parsed:
            with query_errors(), self._errors(), self._cursor() as cursor:
                parsed = UserQuery(query, _views_read(cursor, query, views))
            if len(self._parsed) >= _KEPT_QUERIES:
                self._parsed.clear()
            self._parsed[query, tuple(views)] = parsed
        return self._parsed[query, tuple(views)]

    def run(
        self,
        query: UserQuery,
        parameters: dict[str, Any] | None = None,
        timeout: float | None = None,
        remade: Callable[[], bool] = lambda: False,
    ) -> DuckDBAnswer:
        if timeout is not None:
            deadline_of(timeout)  # not only once rows are fetched
        self._lock_down()
        described = self._described if not parameters and len(self._described) < _KEPT_QUERIES else {}
        # The answer has cursors of its own, because its rows are computed lazily, while others run queries.
        return DuckDBAnswer(self._cursor, self._in_use, query.text, parameters, timeout, remade, described)

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a new connection to this database, so that other queries need not wait for this one."""
        cursor = self._duckdb.cursor()
        self._cursors.add(cursor)
        return cursor

    @contextmanager
    def _in_use(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Let `close` stop a query that runs on a cursor inside the block.

        A result outlives its connection, and a query that began after `close` could not be stopped.
        """
        with self._lock:
            if self._connection is None:
                raise RunClosed
            self._busy.append(cursor)
        try:
            yield
        finally:
            with self._lock:
                self._busy.remove(cursor)

    def _stop_queries(self) -> None:
        deadline = time.monotonic() + _CLOSE_SECONDS
        while (busy := list(self._busy)) and time.monotonic() < deadline:
            for cursor in busy:
                with suppress(duckdb.Error):
                    cursor.interrupt()
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        self._stop_queries()
        if connection is not None:
            _close([*self._cursors, connection])
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def abandon(self) -> None:
        """Abandon an inherited connection in a forked child, where closing it would wait for missing threads."""
        if self._connection is not None:
            forking.abandon(self._connection)
            self._connection = None


class RunFiles:
    """Runs with the URIs of their files: tensortrial://0/index/worker_0/….parquet is a file of the first run.

    They number the runs, so that no query sees their paths.
    """

    def __init__(self, storages: Sequence[Storage]) -> None:
        self._files = [verified_files(storage) for storage in storages]
        self._numbers = {storage.url: number for number, storage in enumerate(storages)}

    def uri(self, storage: Storage, path: str) -> str:
        """Return the URI of a file of one of these runs."""
        return f"{PROTOCOL}://{self._numbers[storage.url]}/{check_path(path)}"

    def find(self, uri: str) -> tuple[VerifiedFiles, str]:
        """Return the run and the path of a URI. Raises FileNotFoundError for files that no query needs."""
        number, _, path = uri.removeprefix(f"{PROTOCOL}://").partition("/")
        folder = path.partition("/")[0]
        if not (number.isdecimal() and int(number) < len(self._files)) or folder not in _FOLDERS:
            raise missing(uri)
        return self._files[int(number)], check_path(path)

    @forking.lazy
    def filesystem(self) -> Any:
        """Return the fsspec filesystem that reads these URIs. Imports fsspec, which takes 0.1 s."""
        try:
            from ..storage.duckdb_filesystem import RunFileSystem
        except ImportError as exc:
            if "failed to map" in str(exc):  # the dynamic loader got no memory for a library of Python
                raise MemoryError(str(exc)) from exc
            raise

        return RunFileSystem(PROTOCOL, self.find)


def _read_parquet(uris: Sequence[str], *options: str) -> str:
    # Paths are part of the text: a view can have no parameters, and DuckDB 1.5 would read all rows at once.
    paths = ", ".join(map(_text, uris))
    return f"read_parquet({', '.join([f'[{paths}]', 'hive_partitioning = false', *filter(None, options)])})"


def _schema(view: FilesView) -> str:
    """Return the option with the columns. Without it, DuckDB would use those of the first file for all files."""
    columns = ", ".join(
        f"'{field.name}': {{name: '{field.name}', type: '{_TYPES[field.type]}', default_value: null}}"
        for field in view.schema
    )
    return f"schema = map {{{columns}}}"


def _text(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _connect(memory_limit: str | None) -> duckdb.DuckDBPyConnection:
    config: dict[str, Any] = {"memory_limit": memory_limit or default_memory_limit()}
    threads = threads_within_limit()
    if threads is not None:
        config["threads"] = threads
    try:
        with _engine_errors():
            connection = duckdb.connect(":memory:", config=config)
            # Texts and parts of times, such as hours, are those of the session's zone.
            connection.execute("set global TimeZone = 'UTC'")
            return connection
    except duckdb.Error as exc:
        if memory_limit:
            raise ConfigurationError(f"memory_limit must be a size such as '8GB', got {memory_limit!r}: {exc}") from exc
        limit = os.environ.get(ENVIRONMENT_VARIABLE)
        if not limit:
            raise
        raise ConfigurationError(f"{ENVIRONMENT_VARIABLE} must be a size such as '8GB', got {limit!r}: {exc}") from exc


@contextmanager
def _engine_errors() -> Iterator[None]:
    """Raise this project's errors for its own statements that fail."""
    try:
        with keyboard_interrupts():
            yield
    except (duckdb.OutOfMemoryException, MemoryError) as exc:
        raise EngineOutOfMemory(str(exc).partition("\n")[0], default_memory_limit()) from exc
    except duckdb.InterruptException as exc:
        raise RunClosed from exc


def _close(connections: Sequence[duckdb.DuckDBPyConnection]) -> None:
    """Stop the queries of other threads on connections, and close them: DuckDB refuses to close a busy connection."""
    deadline = time.monotonic() + _CLOSE_SECONDS
    while connections := [each for each in connections if not _is_closed(each)]:
        if time.monotonic() > deadline:
            for each in connections:
                forking.abandon(each)
            return
        time.sleep(_POLL_SECONDS)


def _is_closed(connection: duckdb.DuckDBPyConnection) -> bool:
    try:
        connection.close()
    except duckdb.Error:
        # DuckDB forgets an interrupt that comes before a query has begun, so it is repeated until the connection
        # closes.
        with suppress(duckdb.Error):
            connection.interrupt()
        return False
    return True


@atexit.register
def _close_all() -> None:
    # DuckDB prints long errors about a connection with a filesystem that outlives the interpreter.
    for database in list(_open):
        database.close()


@forking.call_in_child
def _abandon_all() -> None:
    for database in list(_open):
        database.abandon()
    _open.clear()


def _views_read(connection: duckdb.DuckDBPyConnection, query: str, views: Collection[str]) -> frozenset[str]:
    """Return the views that one SELECT reads. Raises QueryRefused and QueryError for any other statement."""
    if "\0" in query:
        raise QueryError("a query can have no zero byte in it")
    try:
        query.encode()  # a shell may pass any bytes
        statements = connection.extract_statements(query)
    except UnicodeEncodeError as exc:
        raise QueryError(f"a query must be valid UTF-8, and character {exc.start} of it is not") from None
    except duckdb.Error as exc:
        raise QueryError(f"this is not SQL that DuckDB understands: {exc}") from None
    kinds = [statement.type for statement in statements]
    if kinds != [duckdb.StatementType.SELECT]:
        found = ", ".join(str(kind).rpartition(".")[2] for kind in kinds) or "nothing"
        hint = "; a PIVOT must name its values, as in ON name IN ('loss')" if found == "MULTI" else ""
        raise QueryRefused(
            f"only one SELECT is run on a run's views, and this is {found}{hint}: {query.strip()[:200]!r}"
        )
    ((serialized,),) = connection.execute("select json_serialize_sql($query)", {"query": query}).fetchall()
    return user_sql.check(serialized, query, views)
