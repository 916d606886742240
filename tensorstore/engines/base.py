"""The interface of the SQL engines that run queries on open runs.

DuckDB is the embedded default (`engines.duckdb`), Apache Spark the alternative (`engines.spark`). An engine receives
small tables, makes views over them and over Parquet files by `queries/views`, and runs users' queries on the views. The
views are written in a subset of DuckDB's SQL that can be translated. Results are Arrow tables or Python rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from ..errors import QueryError
from ..html_table import html_rows
from ..mode import ModeKeys
from ..storage.open import Storage

Rows = list[tuple[Any, ...]]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RunFile:
    """A Parquet file of a run."""

    storage: Storage
    path: str
    """The path in the run."""
    run: str = ""
    """The name of the run among several open runs; '' for a run that was opened alone."""
    is_exact: bool = False
    """True if the file is known to have exactly the columns of the view, in their order."""


LEFT_OUT = pa.schema([("run", pa.string()), ("path", pa.string()), ("row_of_file", pa.int64())])
"""The columns of rows to leave out: a row is identified by its file and its number in it."""


@dataclass(frozen=True, slots=True)
class FilesView:
    """A view of the catalogue over any number of Parquet files, also none.

    Its first column is `run`, the name of the run that a file belongs to; those of `schema` follow.
    """

    name: str
    schema: pa.Schema
    step: str = "global_step"
    """The column that `first` and `end` refer to."""
    first: int | None = None
    end: int | None = None
    """Rows outside first <= step < end are left out."""
    left_out: pa.Table | None = None
    """Rows that the view leaves out, with the columns of `LEFT_OUT`; None if there are none."""


@dataclass(frozen=True, slots=True)
class UserQuery:
    """A user's query that `Database.parse` has checked."""

    text: str
    """The query in the engine's SQL."""
    views: frozenset[str]
    """The public views that it reads."""


class UnreadableFile(QueryError, FileNotFoundError):
    """A file that a query reads was deleted, or perhaps changed in place, after the views were made."""


class Answer(ABC):
    """The rows of a user's query. `DuckDBAnswer` has more methods."""

    snapshots: Mapping[str, str] = MappingProxyType({})
    """The ids of the snapshots that were queried, by the name of the run; '' for a run that was opened alone."""
    _cursor: Iterator[tuple[Any, ...]] | None = None

    @property
    @abstractmethod
    def columns(self) -> list[str]: ...

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row as Python values; None if there are no more."""
        self._cursor = self._cursor or iter(self)
        return next(self._cursor, None)

    @abstractmethod
    def fetchall(self) -> Rows: ...

    @abstractmethod
    def to_arrow_table(self) -> pa.Table: ...

    @abstractmethod
    def df(self) -> Any: ...

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...

    def _repr_html_(self) -> str:
        return html_rows(self.columns, self)


class Database(ABC):
    """The tables and views of some runs in an engine. Only one thread may use it at a time.

    SQL of this project calls the small tables and the views over files `catalogue.<name>`. Users' queries read the
    public views only.
    """

    @abstractmethod
    def put(self, table: str, rows: pa.Table) -> None:
        """Make a small table of rows, or replace the existing one.

        Args:
            table: The name of the table.
            rows: All of its rows.
        """

    @abstractmethod
    def make_view(self, view: str, with_run: bool) -> None:
        """Make or replace a public view, by the SELECT in `queries/views`.

        Args:
            view: The name of the view.
            with_run: Keep its first column, `run`.
        """

    @abstractmethod
    def make_files_view(self, view: FilesView, files: Sequence[RunFile]) -> None:
        """Make or replace the view `catalogue.<name>` over exactly some files.

        Args:
            view: The view.
            files: The files, which exist and have the columns of the view. If a tensor has several rows, the last row
                in the last file counts.
        """

    @abstractmethod
    def parse(self, query: str, views: Collection[str]) -> UserQuery:
        """Check a user's query by the engine's own parser. The views that it reads need not be made yet.

        Args:
            query: One SELECT.
            views: The names of the public views, in lower case.

        Returns:
            The query, with the views that it reads.

        Raises:
            QueryRefused: It is not one SELECT on the views.
            QueryError: It is not SQL, or reads a view that does not exist.
        """

    @abstractmethod
    def run(
        self,
        query: UserQuery,
        parameters: dict[str, Any] | None = None,
        timeout: float | None = None,
        remade: Callable[[], bool] = lambda: False,
    ) -> Answer:
        """Run a user's query on views that have been made.

        Args:
            query: A query that `parse` returned.
            parameters: The values of `$name` in it.
            timeout: Seconds that the engine may run each time rows are fetched; None for no limit.
            remade: Called when a file of a view cannot be read. Makes the views again and returns True if other files
                replace it; then the query is repeated.

        Returns:
            The rows.

        Raises:
            UnreadableFile: A file of a view is missing, and no other file replaces it.
            CorruptFile: A file of a view is damaged.
            QueryError: The engine cannot run it.
            QueryTimeout: It took longer than `timeout`. Like the others, this may be raised when rows are fetched.
        """

    @abstractmethod
    def close(self) -> None:
        """Release all memory and files."""


class Engine(Protocol):
    """An SQL engine."""

    def connect(self, storages: Sequence[Storage]) -> Database:
        """Open a new database.

        Args:
            storages: The runs that it can read.

        Returns:
            The database.
        """


def rows_of(table: pa.Table) -> Rows:
    """Return the rows of an Arrow table as Python values."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def plain(parameter: Any) -> Any:
    """Return a parameter of a query as engines take it: numbers of numpy as those of Python, a mode by its name."""
    if isinstance(parameter, np.generic):
        return parameter.item()
    if isinstance(parameter, ModeKeys):
        return parameter.name
    if isinstance(parameter, dict):
        return {name: plain(each) for name, each in parameter.items()}
    return [plain(each) for each in parameter] if isinstance(parameter, list | tuple) else parameter
