"""Queries with parameters on DuckDB 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class ExecutedQuery:
    """A query that a connection has begun to run: the part of DuckDB's relations that answers need.

    DuckDB 1 runs `connection.sql(query, params=...)` to its end without letting go of the GIL. A thread of its own that
    then closes a file of Python's waits for the GIL, and DuckDB for that thread: forever. `connection.execute()` lets
    go of it, in every version.

    Args:
        connection: DuckDB's, which nothing else uses.
        query: One statement.
        parameters: Their values, by name.
    """

    def __init__(self, connection: Any, query: str, parameters: Mapping[str, Any]) -> None:
        self._connection: Any = connection.execute(query, dict(parameters))
        self.fetchall = self._connection.fetchall
        self.fetchnumpy = self._connection.fetchnumpy
        self.df = self._connection.df
        self.to_arrow_reader = self._connection.to_arrow_reader

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [name for name, *_ in self._connection.description]

    @property
    def types(self) -> list[Any]:
        """Their types."""
        return [each for _, each, *_ in self._connection.description]

    def to_arrow_table(self) -> pa.Table:
        """Return all rows."""
        reader: pa.RecordBatchReader = self._connection.to_arrow_reader()  # to_arrow_table() keeps the GIL
        return reader.read_all()

    def __len__(self) -> int:
        return len(self.to_arrow_table())

    def __repr__(self) -> str:
        return repr(self._connection.from_arrow(self.to_arrow_table()))
