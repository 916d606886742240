"""The import of Neptune's exports.

They are the Parquet files of neptune-exporter, or CSV files of series or of a table of metrics.

from tensortrial.importers.neptune import import_runs

import_runs("exports/data", "runs/neptune")
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import CorruptFile
from ..storage.open import Storage
from .histograms import drawn_of
from .metrics import Drawn, Points, Report, joined, log
from .tables import column_like, find_tables, points_of_columns, points_of_rows, read_table, steps_of, times_of
from .tracked_runs import ImportOptions, import_exported

_EXPORTED = {"run_id", "attribute_path", "attribute_type", "step", "timestamp", "float_value"}
_SERIES, _HISTOGRAMS = "float_series", "histogram_series"
# The exporter's column for parameters of each type.
_PARAMETERS = {
    "float": "float_value",
    "int": "int_value",
    "string": "string_value",
    "bool": "bool_value",
    "datetime": "datetime_value",
    "string_set": "string_set_value",
}
_RUNS = ("run", "run_id", "experiment", "sys/custom_run_id", "sys/id")


def import_runs(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    step_multiplier: int = 1,
    metadata: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    report: Report = log,
) -> list[str]:
    """Import Neptune's export at `source`, a file or a folder.

    - The Parquet files that neptune-exporter writes: each of their runs becomes a run in a folder of `target`. Series
      of numbers become scalars, histograms of counts stay histograms, parameters become metadata of the run.
    - A CSV with the columns `run` (or `experiment`) and `step`, and one for each metric: the same.
    - CSVs with the columns `step` and `value`, as `fetch_values()` of a series returns them: all files of a folder
      become one run at `target`, in which each series has the name of its file.

    Neptune's steps may be fractions: `step_multiplier`, such as 1000, turns them into whole numbers. Texts and files
    are left out and passed to `report`. Calling it again continues an interrupted import, or adds what is new.

    Args:
        source: A file or a folder, as a path or a URL.
        target: Where the runs go.
        step_multiplier: The factor that makes whole numbers of fractional steps.
        metadata: Metadata of the runs, in addition to their parameters.
        storage_options: The options of the storage of source and target.
        progress: Show a progress bar on a terminal.
        report: Receives a sentence about each thing that was left out. By default it is logged.

    Returns:
        The paths of the imported runs.

    Raises:
        RunNotFound: The source is missing.
        CorruptFile: The source is not an export of Neptune.
        RunExists: A target holds another run.
    """
    storage, paths, url = find_tables(source, storage_options)
    runs: dict[str, list[Points]] = {}
    for path in paths:
        for run, points in _points(storage, path, step_multiplier, report):
            runs.setdefault(run, []).append(points)
    options = ImportOptions(target, metadata, storage_options, progress, report)
    return import_exported(runs, url, "neptune", "Neptune", options)


def _points(storage: Storage, path: str, multiplier: int, report: Report) -> Iterator[tuple[str, Points]]:
    """Yield the runs of a file, each with its points."""
    table, url = read_table(storage, path, report), f"{storage.url}/{path}"
    if set(table.column_names) >= _EXPORTED:
        for run in _distinct(table["run_id"]):
            yield run, _exported(table.filter(pc.equal(table["run_id"], run)), url, multiplier, report)
        return
    step, run_column = column_like(table, ("step",)), column_like(table, _RUNS)
    if step and run_column:
        metrics = {name: name for name in table.column_names if name not in (step, run_column)}
        for run in _distinct(table[run_column]):
            rows = table.filter(pc.equal(table[run_column], run))
            steps = steps_of(rows[step], url, multiplier)
            yield str(run), points_of_columns(rows, metrics, steps, times_of(None, len(rows)), url, report)
    elif step and "value" in table.column_names:
        time = table["timestamp"] if "timestamp" in table.column_names else None
        steps, series = steps_of(table[step], url, multiplier), {"value": path.rpartition(".")[0]}
        yield "", points_of_columns(table, series, steps, times_of(time, len(table)), url, report)
    else:
        raise CorruptFile(
            url,
            "this is neither a file of neptune-exporter, nor a table with the columns run and step, nor a series with "
            "the columns step and value; import other tables by `tensortrial import csv`",
        )


def _distinct(runs: pa.ChunkedArray) -> list[Any]:
    return [run for run in runs.unique().to_pylist() if run is not None]


def _exported(rows: pa.Table, url: str, multiplier: int, report: Report) -> Points:
    """Return the points of one run of a file of neptune-exporter."""
    kind = rows["attribute_type"]
    series = rows.filter(pc.equal(kind, _SERIES))
    points = points_of_rows(
        series["attribute_path"],
        series["float_value"],
        steps_of(series["step"], url, multiplier),
        times_of(series["timestamp"], len(series)),
        url,
        report,
    )
    histograms: list[Drawn] = []
    if "histogram_value" in rows.column_names:
        drawn = rows.filter(pc.equal(kind, _HISTOGRAMS))
        steps, times = steps_of(drawn["step"], url, multiplier), times_of(drawn["timestamp"], len(drawn))
        histograms += drawn_of(drawn["histogram_value"], drawn["attribute_path"].to_pylist(), steps, times)
    left = Counter(kind.to_pylist()) - Counter({_SERIES: len(series), _HISTOGRAMS: len(histograms)})
    for name, count in left.items():
        if name not in _PARAMETERS:
            report(f"{url}: {count} rows of {name}")
    return joined([replace(points, histograms=histograms)], dict(_parameters(rows)))


def _parameters(rows: pa.Table) -> Iterator[tuple[str, Any]]:
    """Yield the parameters, as JSON values."""
    for kind, column in _PARAMETERS.items():
        if column in rows.column_names:
            found = rows.filter(pc.equal(rows["attribute_type"], kind))
            for name, value in zip(found["attribute_path"].to_pylist(), found[column].to_pylist(), strict=True):
                yield name, value.isoformat() if kind == "datetime" and value is not None else value
