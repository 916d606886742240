"""The seam between a catalogue and the SQL engine that answers its questions.

DuckDB is the embedded default (`duckdb_engine`), Apache Spark another one (`spark_engine`). An engine holds the small
tables of a catalogue, makes views over Parquet files, and runs the questions of `queries/`, which are written in the
part of DuckDB's SQL that translates. What it answers is Arrow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from ..storage.open import Storage

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class RunFile:
    """A Parquet file of a run."""

    storage: Storage
    path: str
    """Run-relative."""
    run: str = ""
    """What the run is called among those opened together."""


@dataclass(frozen=True, slots=True)
class FilesView:
    """A view over Parquet files, which need not have any."""

    name: str
    schema: pa.Schema
    time: str = ""
    """The column with a time, which the view gives as UTC without saying so; '' if there is none."""
    step: str = "global_step"
    """The column that `first` and `end` speak of."""
    first: int | None = None
    end: int | None = None
    """Rows outside of first <= step < end are left out."""
    with_run: bool = False
    """Whether the run that a file belongs to is the first column."""
    public: bool = True
    """Whether a user's query can read it; otherwise only other views do."""

    @property
    def floats(self) -> list[str]:
        """Return the columns that no filter may be compared with a file's minimum and maximum for: NaN is not among
        those, and both engines would skip row groups that hold it. Spark takes 0.0 for more than a maximum of -0.0."""
        return [field.name for field in self.schema if pa.types.is_floating(field.type)]


class Answer(Protocol):
    """The rows of a user's query. DuckDB's can do more (`DuckDBAnswer`)."""

    @property
    def columns(self) -> list[str]: ...

    def fetchall(self) -> Rows: ...

    def to_arrow_table(self) -> pa.Table: ...

    def df(self) -> Any: ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class Database(ABC):
    """What a catalogue keeps in an engine, and asks of it. Not to be used from two threads at once.

    The small tables are called `catalogue.<name>` in questions.
    """

    def create(self, tables: Mapping[str, pa.Schema]) -> None:
        """Make small tables without rows."""
        for table, schema in tables.items():
            self.put(table, schema.empty_table())

    @abstractmethod
    def put(self, table: str, rows: pa.Table) -> None:
        """Make a small table of these rows, in the place of the one that may be there."""

    @abstractmethod
    def append(self, table: str, rows: pa.Table) -> None:
        """Add rows to a small table."""

    @abstractmethod
    def update(self, table: str, column: str, before: Sequence[str], after: str) -> None:
        """Write `after` wherever a text column of a small table has one of `before`."""

    @abstractmethod
    def delete(self, table: str, column: str, values: Sequence[str]) -> None:
        """Remove the rows of a small table whose text column has one of these values."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what is changed inside the block, or, after an exception, none of it."""
        yield

    @abstractmethod
    def ask(self, question: str, parameters: dict[str, Any]) -> pa.Table:
        """The answer to a question of `queries/` about the small tables and the views."""

    def rows(self, question: str, parameters: dict[str, Any]) -> Rows:
        """The same as Python values."""
        return rows_of(self.ask(question, parameters))

    @abstractmethod
    def make_view(self, question: str) -> None:
        """Make the view that a question of `queries/` creates, or make it anew."""

    @abstractmethod
    def make_files_view(self, view: FilesView, files: Sequence[RunFile]) -> None:
        """Make a view over exactly these files, or make it anew."""

    @abstractmethod
    def sql(self, query: str, parameters: dict[str, Any] | None = None, timeout: float | None = None) -> Answer:
        """Return the rows of a user's query on the views that there are.

        Args:
            query: One SELECT.
            parameters: What `$name` stands for in it.
            timeout: Seconds that the engine may run each time that rows are taken; None for no limit.

        Raises:
            QueryRefused: It is not one SELECT on the views.
            QueryError: The engine cannot run it.
            QueryTimeout: It took longer; like the others, it may be raised when rows are taken.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what is held."""


class Engine(Protocol):
    """Where questions about runs are answered."""

    def connect(self, storages: Sequence[Storage]) -> Database:
        """A database of its own, which can read these runs."""


def rows_of(table: pa.Table) -> Rows:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
