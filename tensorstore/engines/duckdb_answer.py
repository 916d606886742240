"""The result of a user's query in DuckDB. Its rows are computed when they are fetched, with this project's errors."""

from __future__ import annotations

import atexit
import importlib
import os
import re
import sys
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from .. import forking
from ..errors import (
    CorruptFile,
    QueryError,
    QueryMemoryExceeded,
    QueryRefused,
    QueryTimeout,
    RunClosed,
    TemporaryDiskExceeded,
    TensorTrialError,
)
from ..snapshot.snapshot import repeated
from .base import Answer, Rows, UnreadableFile, rows_of
from .interrupting import DeadlinePassed, interruptible

PROTOCOL = "tensortrial"
"""The scheme of the URIs by which DuckDB reads the files of runs."""
_T = TypeVar("_T")
_BATCH_ROWS = 1_000_000
# The rows that are fetched at once: few at first, then as many as fit into _FETCHED_BYTES.
_FIRST_ROWS, _MOST_ROWS = 64, 10_000
_FETCHED_BYTES = 8 << 20


_NEEDS_TEXT = re.compile(r'(?<!")\b(UHUGEINT|BIGNUM|BIT|TIME WITH TIME ZONE)\b')
"""DuckDB's types, alone or nested, that its tables of Arrow and numpy lack, cut off or spell as bytes of its own."""
_ZONED = "TIMESTAMP WITH TIME ZONE"
_NO_TIME = "the rows have a time, such as infinity, that cannot be represented: cast the column to VARCHAR"
# SQL that replaces a column in tables of Arrow and numpy, which show infinity as a year.
_SAME, _TEXT = "{0}", "{0}::varchar"
_FINITE = f"if(not isfinite({{0}}), error('{_NO_TIME}'), {{0}})"
_TIME = re.compile(r"DATE|TIMESTAMP\w*( WITH TIME ZONE)?")


class DuckDBAnswer(Answer):
    """The rows of a query, which runs on connections of its own.

    Every method that fetches rows runs the query again, on a new connection, so that an unfinished reader disturbs
    nobody. The transactions are read-only.
    """

    def __init__(
        self,
        connect: Callable[[], duckdb.DuckDBPyConnection],
        in_use: Callable[[duckdb.DuckDBPyConnection], AbstractContextManager[None]],
        query: str,
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        remade: Callable[[], bool] = lambda: False,
        described: dict[str, list[tuple[str, str]]] | None = None,
    ) -> None:
        self._remade = remade
        self._connect = connect
        self._in_use = in_use
        self._query = query
        self._parameters = dict(parameters) if parameters is not None else None
        self._timeout = timeout
        self._process = os.getpid()
        # The first method that fetches rows uses this relation, and need not bind the query again.
        self._ready: tuple[duckdb.DuckDBPyConnection, Any] | None = None
        self._is_cast = described is None  # as `_cast` makes it
        self._described = {} if described is None else described

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [name for name, _ in self._columns]

    @property
    def types(self) -> list[str]:
        """The types of the columns, as DuckDB calls them."""
        return [kind for _, kind in self._columns]

    @property
    def _columns(self) -> list[tuple[str, str]]:
        if self._query not in self._described:
            self._ready = _, relation = self._repeated(self._bound)
            self._described[self._query] = [(name, str(kind)) for name, kind, *_ in relation.description]
        return self._described[self._query]

    # Rows.

    def fetchall(self) -> Rows:
        """Return all rows as Python values."""
        if self._has_zones:
            return list(self)
        # A relation is bound twice: when it is made, and when it runs. So none is made here.
        return self._take(
            lambda rows: rows.fetchall(), lambda connection: connection.execute(self._query, self._parameters)
        )

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows as Python values, while the query runs."""
        if self._has_zones:
            yield from self._with_utc()
            return
        connection, rows = self._repeated(self._begun)
        try:
            while rows:
                count = _rows_at_once(rows)
                yield from rows
                rows = self._run(connection, partial(connection.fetchmany, count))
        finally:
            connection.close()

    @property
    def _has_zones(self) -> bool:
        """True if there are times with a zone, for which DuckDB needs pytz, and makes infinity a time of its own."""
        return any(_ZONED in kind for kind in self.types)

    def _with_utc(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows as Python values. DuckDB makes the times without their zone."""
        are_zoned = [kind == _ZONED for kind in self.types]
        if are_zoned != [_ZONED in kind for kind in self.types]:  # in lists or structs, which Arrow makes, too
            for batch in self.arrow():
                try:
                    rows = rows_of(batch)
                except OverflowError as exc:
                    raise QueryError(_NO_TIME) from exc
                yield from rows
            return
        for row in self._cast(["{0}::timestamp" if is_zoned else _SAME for is_zoned in are_zoned]):
            yield tuple(
                _in_utc(cell) if is_zoned and cell is not None else cell
                for cell, is_zoned in zip(row, are_zoned, strict=True)
            )

    def _begun(self) -> tuple[duckdb.DuckDBPyConnection, Rows]:
        """Return a connection that runs the query, and its first rows."""
        connection = self._connection()
        try:
            self._run(connection, lambda: connection.execute(self._query, self._parameters))
            return connection, self._run(connection, lambda: connection.fetchmany(_FIRST_ROWS))
        except BaseException:
            connection.close()
            raise

    def fetchnumpy(self) -> dict[str, Any]:
        """Return the columns as numpy arrays, by name."""
        answer = self._for_tables()
        return answer.fetchnumpy() if answer else self._take(lambda relation: relation.fetchnumpy())

    def df(self) -> Any:
        """Return a pandas DataFrame."""
        _need("pandas", "df()")
        answer = self._for_tables()
        return answer.df() if answer else self._take(lambda relation: relation.df())

    to_df = df

    def pl(self) -> Any:
        """Return a polars DataFrame."""
        return _need("polars", "pl()").from_arrow(self.to_arrow_table())

    def to_arrow_table(self) -> pa.Table:
        """Return an Arrow table."""
        answer = self._for_tables()
        return answer.to_arrow_table() if answer else self._take(lambda relation: relation.to_arrow_table())

    def arrow(self, batch_size: int | None = None) -> pa.RecordBatchReader:
        """Return a reader of record batches, which runs the query while it is read.

        Args:
            batch_size: The most rows of a batch; None for 1,000,000, or 64 where a column has raw values.
        """
        batch_size = batch_size or (_FIRST_ROWS if "BLOB" in self.types else _BATCH_ROWS)
        if answer := self._for_tables():
            return answer.arrow(batch_size)
        connection, reader = self._repeated(lambda: self._reader(batch_size))
        batches = self._batches(connection, reader)
        _unfinished.add(batches)
        return pa.RecordBatchReader.from_batches(reader.schema, batches)

    def _for_tables(self) -> DuckDBAnswer | None:
        """Return an answer with text for types that Arrow and numpy lack, and errors for infinite times; or None."""
        kinds = [] if self._is_cast else self.types
        cells = [_TEXT if _NEEDS_TEXT.search(kind) else _FINITE if _TIME.fullmatch(kind) else _SAME for kind in kinds]
        return self._cast(cells) if {*cells} - {_SAME} else None

    def _cast(self, cells: Sequence[str]) -> DuckDBAnswer:
        """Return an answer with SQL in place of each column, which is `{0}` in it."""
        names = [name.replace('"', '""') for name in self.columns]
        selected = ", ".join(f'{cell.format(f"c{i}")} as "{names[i]}"' for i, cell in enumerate(cells))
        columns = ", ".join(f"c{i}" for i in range(len(names)))
        # The places of words are in bytes. A comment may follow the semicolon.
        text = self._query.encode()
        end = next((at for at, _ in duckdb.tokenize(self._query) if text[at : at + 1] == b";"), None)
        query = f"select {selected} from ({text[:end].decode()}\n) as rows({columns})"
        return DuckDBAnswer(self._connect, self._in_use, query, self._parameters, self._timeout, self._remade)

    def _reader(self, batch_size: int) -> tuple[duckdb.DuckDBPyConnection, Any]:
        connection, relation = self._taken() or self._bound()
        try:
            return connection, self._run(connection, lambda: relation.to_arrow_reader(batch_size))
        except BaseException:
            connection.close()
            raise

    to_arrow_reader = arrow

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.arrow().__arrow_c_stream__(requested_schema)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""
        # There is no __len__: list(answer) would call it, and so run the query twice.
        return self._take(len), len(self.columns)

    # For people.

    def show(self) -> None:
        """Print the first rows."""
        print(repr(self))

    def __repr__(self) -> str:
        return self._take(repr)

    # Running.

    def _connection(self) -> duckdb.DuckDBPyConnection:
        with query_errors():
            connection = self._connect()
            connection.execute("begin transaction read only")
        return connection

    def _bound(self) -> tuple[duckdb.DuckDBPyConnection, Any]:
        connection = self._connection()
        try:
            relation = self._run(connection, lambda: self._relation(connection))
        except BaseException:
            connection.close()
            raise
        return connection, relation

    def _relation(self, connection: duckdb.DuckDBPyConnection) -> Any:
        if self._parameters and duckdb.__version__.startswith("1."):
            return _ExecutedQuery(connection, self._query, self._parameters)
        return connection.sql(self._query, params=self._parameters)

    def _taken(self) -> tuple[duckdb.DuckDBPyConnection, Any] | None:
        """Return the bound relation, if there is one, with its connection, which the caller closes."""
        ready, self._ready = self._ready, None
        if self._process != os.getpid():
            if ready:
                forking.abandon(ready)
            raise QueryError("this answer belongs to the process that forked: make the query again in this one")
        return ready

    def _repeated(self, work: Callable[[], _T]) -> _T:
        return repeated(work, self._remade)

    def _take(self, work: Callable[[Any], _T], begin: Callable[[duckdb.DuckDBPyConnection], Any] | None = None) -> _T:
        """Return the result of `work` for the query's relation, or for the result of `begin` for a connection."""
        return self._repeated(lambda: self._take_once(work, begin or self._relation))

    def _take_once(self, work: Callable[[Any], _T], begin: Callable[[duckdb.DuckDBPyConnection], Any]) -> _T:
        ready = self._taken()
        connection = ready[0] if ready else self._connection()
        try:
            return self._run(connection, lambda: work(ready[1] if ready else begin(connection)))
        finally:
            connection.close()

    def _run(self, connection: duckdb.DuckDBPyConnection, work: Callable[[], _T]) -> _T:
        with query_errors(self._timeout), self._in_use(connection):
            return interruptible(work, connection.interrupt, self._timeout)

    def _batches(self, connection: duckdb.DuckDBPyConnection, reader: Any) -> Generator[pa.RecordBatch]:
        try:
            while (batch := self._run(connection, lambda: next(reader, None))) is not None:
                yield batch
        finally:
            connection.close()


_unfinished: weakref.WeakSet[Generator[pa.RecordBatch]] = weakref.WeakSet()


@atexit.register
def _close_readers() -> None:
    # DuckDB prints long errors about a reader that outlives the interpreter, or ends the process by SIGABRT.
    for batches in list(_unfinished):
        with suppress(ValueError):  # another thread is reading
            batches.close()


class _ExecutedQuery:
    """A running query, with the part of the interface of DuckDB's relations that answers need.

    DuckDB 1 keeps the GIL while it runs `connection.sql(query, params=...)`. This deadlocks if a thread of DuckDB
    closes a Python file, which needs the GIL. `connection.execute()` releases the GIL in every version.

    Args:
        connection: A connection of DuckDB that nothing else uses.
        query: One statement.
        parameters: The values of `$name` in the query.
    """

    def __init__(self, connection: Any, query: str, parameters: Mapping[str, Any]) -> None:
        self._connection: Any = connection.execute(query, dict(parameters))
        self.fetchall = self._connection.fetchall
        self.fetchnumpy = self._connection.fetchnumpy
        self.df = self._connection.df
        self.to_arrow_reader = self._connection.to_arrow_reader
        self.description = self._connection.description

    def to_arrow_table(self) -> pa.Table:
        """Return all rows."""
        reader: pa.RecordBatchReader = self._connection.to_arrow_reader()  # to_arrow_table() keeps the GIL
        return reader.read_all()

    def __len__(self) -> int:
        return len(self.to_arrow_table())

    def __repr__(self) -> str:
        return repr(self._connection.from_arrow(self.to_arrow_table()))


def _in_utc(time: Any) -> datetime:
    if not isinstance(time, datetime) or time in (datetime.min, datetime.max):  # DuckDB's infinities
        raise QueryError(_NO_TIME)
    return time.replace(tzinfo=UTC)


def _rows_at_once(rows: Rows) -> int:
    """Return the number of rows of this size to fetch at once."""
    nbytes = sum(_nbytes(value) for row in rows for value in row)
    return max(1, min(2 * len(rows), _MOST_ROWS, _FETCHED_BYTES * len(rows) // max(nbytes, 1)))


def _nbytes(value: Any) -> int:
    if isinstance(value, list | tuple):
        return 8 + len(value) * _nbytes(value[0] if value else None)
    if isinstance(value, dict):
        return 8 + sum(map(_nbytes, value.values()))
    return sys.getsizeof(value)


# DuckDB turns an exception of the filesystem into text.
_DAMAGE = re.compile(r"\bCorruptFile: (?P<path>[^\n]+?): (?P<said>[^\n]+)")
_MISSING = re.compile(r"\bFileNotFoundError: [^\n]*?(?P<said>no such file in the run: [^\n]+)")


@contextmanager
def query_errors(timeout: float | None = None) -> Iterator[None]:
    """Raise this project's errors for all failures of a user's query."""
    try:
        yield
    except TensorTrialError:
        raise
    except DeadlinePassed as exc:
        assert timeout is not None
        raise QueryTimeout(timeout) from exc
    except (duckdb.ConnectionException, duckdb.InterruptException) as exc:
        # An interrupt has an error of its own: of a timeout or of Ctrl-C.
        raise RunClosed from exc
    except duckdb.PermissionException as exc:
        raise QueryRefused(f"a query can read the views of its run, and nothing else: {exc}") from exc
    except (duckdb.OutOfMemoryException, MemoryError) as exc:
        said = str(exc).partition("\n")[0]
        raise (TemporaryDiskExceeded if "offload" in said else QueryMemoryExceeded)(said) from exc
    except Exception as exc:
        if damage := _DAMAGE.search(str(exc)):
            raise CorruptFile(damage["path"], damage["said"]) from exc
        if missing := _MISSING.search(str(exc)):
            raise UnreadableFile(f"{missing['said']}: it was deleted before the query read it") from exc
        # DuckDB's parser of Parquet files raises errors of the class `Error` itself, without the name of the file.
        if type(exc) is duckdb.Error or f"{PROTOCOL}://" in str(exc):
            raise UnreadableFile(str(exc)) from None
        # pyarrow, pandas and Python raise these for values they cannot represent.
        said, advice, _ = str(exc).partition("\n\nPlease try installing")
        # The message has DuckDB's full text. With a cause, a notebook would print both tracebacks.
        raise QueryRefused(f"a query can use no extension: {said}") if advice else QueryError(said) from None


def _need(package: str, method: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as exc:
        raise QueryError(f"{method} needs {package}, which is not installed: pip install {package}") from exc
