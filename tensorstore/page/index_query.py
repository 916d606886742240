"""SQL over some index files of a run, in a database of its own, which nothing else waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ..engines.base import RunFile
from ..engines.duckdb import DuckDBEngine
from ..read.catalogue.views import FILES_OF_TENSORS, Views
from ..storage.open import Storage


def query_files(storage: Storage, paths: Sequence[str], query: str, values: Mapping[str, Any]) -> pa.Table:
    """Return the rows of one SELECT on the view `tensors`, which has the rows of some index files.

    Args:
        storage: The run.
        paths: The files, which were found readable.
        query: The SELECT.
        values: The values of `$name` in it.

    Returns:
        The rows.

    Raises:
        MissingFile: A file was superseded meanwhile.
    """
    files = [RunFile(storage, path) for path in paths]
    database = DuckDBEngine().connect([storage])
    try:
        views = Views(database)
        views.add_files(FILES_OF_TENSORS, lambda: 0, lambda: files)
        return views.sql(query, dict(values)).to_arrow_table()
    finally:
        database.close()
