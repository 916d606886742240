"""The workaround for queries with parameters in DuckDB 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class ExecutedQuery:
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
