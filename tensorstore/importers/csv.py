"""The import of a table of metrics, in CSV or Parquet.

from tensortrial.importers.csv import import_run

import_run("log.csv", "runs/old", step="iteration")
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ConfigurationError, CorruptFile
from ..storage.open import Storage, open_storage
from .metrics import Points, Report, import_points, joined, log
from .tables import (
    column_like,
    find_tables,
    holds_times,
    points_of_columns,
    points_of_rows,
    read_table,
    steps_of,
    times_of,
)

_STEPS = ("step", "global_step", "_step", "iteration", "iter", "epoch")
_TIMES = ("timestamp", "_timestamp", "wall time", "wall_time", "time", "saved_at")


def import_run(  # noqa: PLR0913 - an option for each thing that a CSV file leaves open
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    step: str | None = None,
    time: str | None = None,
    name: str | None = None,
    value: str | None = None,
    step_multiplier: int = 1,
    metadata: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    report: Report = log,
) -> str:
    """Import the table `source`, or all tables in that folder, into a run at `target`.

    A table is CSV with a header, or Parquet. Each column of numbers becomes a scalar of its name, or, if `name` and
    `value` are set, each row becomes a value of the scalar that it names. The tables of a folder are joined by their
    steps; of two numbers for one step the last is kept. Calling it again continues an interrupted import, or adds new
    rows.

    Args:
        source: A file or a folder, as a path or a URL.
        target: Where the run goes.
        step: The column of steps. By default a column named step, global_step, iteration or epoch; without one, the
            rows are counted.
        time: The column of times, as timestamps or in seconds since 1970.
        name: The column with the names of scalars.
        value: The column with their values.
        step_multiplier: The factor that makes whole numbers of fractional steps.
        metadata: Metadata of the run.
        storage_options: The options of the storage of source and target.
        progress: Show a progress bar on a terminal.
        report: Receives a sentence about each thing that was left out. By default it is logged.

    Returns:
        The path of the run.

    Raises:
        RunNotFound: The source is missing.
        CorruptFile: The source is not a table of metrics.
        ConfigurationError: A column is missing.
        RunExists: The target holds another run.
    """
    if (name is None) != (value is None):
        raise ConfigurationError("name and value must be set together: the column of names, and that of numbers")
    storage, paths, url = find_tables(source, storage_options)
    roles = {"step": step, "time": time, "name": name, "value": value}
    wanted = {role: column.strip() if isinstance(column, str) else column for role, column in roles.items()}
    parts = [_points(storage, path, wanted, step_multiplier, report) for path in paths]
    points = joined(parts, metadata)
    if not len(points):
        raise CorruptFile(url, "it has no number that could be imported")
    return import_points(points, url, "csv", open_storage(target, storage_options), progress, report)


def _points(storage: Storage, path: str, wanted: Mapping[str, str | None], multiplier: int, report: Report) -> Points:
    table, url = read_table(storage, path, report), f"{storage.url}/{path}"
    for role, column in wanted.items():
        if column is not None and column not in table.column_names:
            known = ", ".join(map(repr, table.column_names))
            raise ConfigurationError(f"unknown column {column!r} for the {role} in {url}. Known columns: {known}")
    step = wanted["step"] or column_like(table, _STEPS)
    time = wanted["time"] or column_like(table, _TIMES)
    if time and not holds_times(table[time]):
        report(f"{url}: the times, because its column {time!r} holds {table[time].type}")
    steps = np.arange(len(table)) if step is None else steps_of(table[step], url, multiplier)
    saved_at = times_of(table[time] if time else None, len(table))
    if time and holds_times(table[time]) and (wrong := int(np.sum(saved_at == 0)) - table[time].null_count):
        report(f"{url}: {wrong} times of {time!r} that are not between 1973 and 2200")
    if wanted["name"] and wanted["value"]:
        return points_of_rows(table[wanted["name"]], table[wanted["value"]], steps, saved_at, url, report)
    columns = {column: column for column in table.column_names if column not in (step, time)}
    return points_of_columns(table, columns, steps, saved_at, url, report)
