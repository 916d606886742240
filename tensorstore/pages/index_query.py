"""SQL over some index files of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ..engines.base import LEFT_OUT, FilesView, RunFile, UserQuery
from ..format import arrow_arrays
from ..format.schema import INDEX_SCHEMA
from ..read.run_reader import RunReader


def query_files(
    reader: RunReader,
    paths: Sequence[str],
    query: str,
    values: Mapping[str, Any],
    left_out: Mapping[str, Sequence[int]],
) -> pa.Table:
    """Return the rows of one SELECT on the view `tiled` over some index files, which must be readable.

    One thread at a time queries files of a run. Other queries of the run need not wait for the rows.

    Args:
        reader: The run.
        paths: The index files.
        query: The SELECT.
        values: The values of `$name` in the query.
        left_out: The superseded rows of each file.

    Raises:
        UnreadableFile: A file was superseded meanwhile.
    """
    files = [RunFile(reader.storage, path, is_exact=reader.sources.is_exact(path)) for path in paths]
    rows = [("", path, row) for path in paths for row in left_out.get(path, ())]
    view = FilesView("tiled", INDEX_SCHEMA, left_out=arrow_arrays.table(LEFT_OUT, rows) if rows else None)
    queries = reader.queries
    with queries.of_files:  # the view must not change before all rows are fetched
        with queries.lock:
            queries.database.make_files_view(view, files)
            queries.database.make_view("tiled", with_run=False)
        return queries.database.run(UserQuery(query, frozenset({"tiled"})), dict(values)).to_arrow_table()
