"""SQL over some index files of a run, in a separate database, so that other queries need not wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ..engines.base import LEFT_OUT, FilesView, RunFile
from ..engines.duckdb import DuckDBEngine
from ..format import arrow_arrays
from ..format.schema import INDEX_SCHEMA
from ..storage.open import Storage


def query_files(
    storage: Storage,
    paths: Sequence[str],
    query: str,
    values: Mapping[str, Any],
    left_out: Mapping[str, Sequence[int]],
) -> pa.Table:
    """Return the rows of one SELECT on the view `tensors` over some index files, which must be readable.

    `values` are those of `$name` in the query, and `left_out` has the superseded rows of each file.

    Raises:
        UnreadableFile: A file was superseded meanwhile.
    """
    files = [RunFile(storage, path) for path in paths]
    rows = [("", path, row) for path in paths for row in left_out.get(path, ())]
    view = FilesView("tensors", INDEX_SCHEMA, "saved_at", left_out=arrow_arrays.table(LEFT_OUT, rows) if rows else None)
    database = DuckDBEngine().connect([storage])
    try:
        database.make_files_view(view, files)
        database.make_view("tensors", with_run=False)
        return database.run(database.parse(query, ["tensors"]), dict(values)).to_arrow_table()
    finally:
        database.close()
