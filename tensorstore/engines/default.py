"""The engine of runs that were opened without one."""

from __future__ import annotations

from .base import Engine


def default_engine() -> Engine:
    """Return DuckDB with its defaults. It is imported here, as only queries need it: that takes 0.02 s."""
    from .duckdb import DuckDBEngine

    return DuckDBEngine()
