"""The wide table of runs: one row per run, with a column for each metadata key and for each scalar in each mode."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ..nested import flat
from ..read.runs import RunLocations, Runs, open_runs

_RUNS = "select * exclude (versions, metadata), metadata from runs order by started_at, run"
_SUMMARY = "select * from run_summary order by name, mode"


def run_table(runs: Runs | RunLocations, *, storage_options: Mapping[str, Any] | None = None) -> pa.Table:
    """Return one row per run, in the order in which the runs started.

    The columns are:

    - those of the view `runs`;
    - one for each key of the metadata, such as `metadata.model.width` for the key `width` in the object `model`;
    - five for each scalar in each mode: `loss.TRAIN.last`, `last_step`, `min` and `max` (of the finite values) and
      `steps` (the number of global steps).

    A cell is null where the run has no such key or scalar.

    Args:
        runs: Runs, or an argument of `open_runs`: a folder, a pattern, a Trial, or a list of these.
        storage_options: The options of the runs' storage.

    Returns:
        The table. Metadata that have different types in different runs are texts.

    Raises:
        RunNotFound: There is no run.
    """
    if not isinstance(runs, Runs):
        with open_runs(runs, storage_options=storage_options) as opened:
            return run_table(opened)
    table = runs.sql(_RUNS).to_arrow_table()
    metadata = [flat(json.loads(text), "metadata.") for text in table["metadata"].to_pylist()]
    table = table.drop_columns(["metadata"])
    row_of = {run: row for row, run in enumerate(table["run"].to_pylist())}
    for name in dict.fromkeys(key for values in metadata for key in values):
        table = table.append_column(name, _array([values.get(name) for values in metadata]))
    for name, cells in _scalars(runs.sql(_SUMMARY).to_arrow_table(), row_of).items():
        table = table.append_column(name, pa.array(cells))
    return table


def _scalars(summary: pa.Table, row_of: Mapping[str, int]) -> dict[str, list[Any]]:
    """Return the cells of the columns of scalars, by the names of the columns."""
    columns: dict[str, list[Any]] = {}
    for row in summary.to_pylist():
        run, prefix = row.pop("run"), f"{row.pop('name')}.{row.pop('mode')}"
        for figure, value in row.items():
            columns.setdefault(f"{prefix}.{figure}", [None] * len(row_of))[row_of[run]] = value
    return columns


def _array(values: Sequence[Any]) -> pa.Array:
    """Return values of one column: of their common type, or as texts if they have none."""
    try:
        array = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        array = pa.array([_text(value) for value in values], pa.string())
    return array.cast(pa.string()) if pa.types.is_null(array.type) else array


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
