"""The exports of Weights & Biases: the history of a run, in Parquet or CSV, and the CSV of a chart."""

from __future__ import annotations

import os

import pyarrow as pa

from ...errors import CorruptFile
from ...storage.open import Storage
from ..metrics import Points, Report
from ..tables import find_tables, points_of_columns, read_table, steps_of, times_of
from ..tracked_runs import ImportOptions, import_exported

_STEP, _TIME = "_step", "_timestamp"
_BOUNDS = ("__MIN", "__MAX")


def import_exports(source: str | os.PathLike[str], options: ImportOptions) -> list[str]:
    """Import an export, a file or a folder, and return the paths of its runs."""
    storage, paths, url = find_tables(source, options.storage_options, others=".wandb, ")
    runs: dict[str, list[Points]] = {}
    for path in paths:
        for run, points in _points(storage, path, options.report).items():
            runs.setdefault(run, []).append(points)
    return import_exported(runs, url, "wandb", "W&B", options)


def _points(storage: Storage, path: str, report: Report) -> dict[str, Points]:
    """Return the points of a file, by the name of the run."""
    table, url = read_table(storage, path, report), f"{storage.url}/{path}"
    if _STEP in table.column_names:
        return {path.rpartition("/")[0]: _history(table, url, report)}
    runs = _chart(table)
    if not runs:
        raise CorruptFile(
            url,
            f"this is neither the history of a run, which has a column {_STEP}, nor a chart, which has columns "
            "RUN - METRIC; import other tables by `tensortrial import csv`",
        )
    return {run: _line(table, columns, url, report) for run, columns in runs.items()}


def _history(table: pa.Table, url: str, report: Report) -> Points:
    time = table[_TIME] if _TIME in table.column_names else None
    metrics = {column: column for column in table.column_names if column not in (_STEP, _TIME)}
    return points_of_columns(table, metrics, steps_of(table[_STEP], url), times_of(time, len(table)), url, report)


def _chart(table: pa.Table) -> dict[str, dict[str, str]]:
    """Return the columns of each run, with the metric of each column."""
    runs: dict[str, dict[str, str]] = {}
    for column in table.column_names:
        run, dash, metric = column.rpartition(" - ")
        if dash and run and not column.endswith(_BOUNDS):
            runs.setdefault(run, {})[column] = metric
    return runs


def _line(table: pa.Table, columns: dict[str, str], url: str, report: Report) -> Points:
    # A chart whose x-axis is not the step has a column of steps for each run.
    step = next((column for column, metric in columns.items() if metric == _STEP), table.column_names[0])
    metrics = {column: metric for column, metric in columns.items() if column != step}
    return points_of_columns(table, metrics, steps_of(table[step], url), times_of(None, len(table)), url, report)
