"""The import of the files of Lightning's CSVLogger. Lightning need not be installed.

from tensortrial.importers.lightning import import_runs

import_runs("lightning_logs", "runs")
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from ..errors import CorruptFile, MissingExtra, RunNotFound
from ..storage.base import join
from ..storage.open import Storage, open_storage
from .documents import clean, yaml_of
from .metrics import Points, Report, log
from .tables import csv_of, points_of_columns, steps_of, times_of
from .tracked_runs import ImportOptions, import_tracked, runs_of_folders

_METRICS, _HPARAMS, _STEP = "metrics.csv", "hparams.yaml", "step"
_DEPTH = 5


def import_runs(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    metadata: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    report: Report = log,
) -> list[str]:
    """Import the runs that Lightning's CSVLogger wrote to `source`.

    The columns of `metrics.csv` become scalars at its steps, and `hparams.yaml` becomes metadata. Objects in it are not
    created. The folder of one run, such as `lightning_logs/version_0`, is imported to `target`, and a folder of such
    folders to folders of `target` with the same names. CSVLogger keeps no times. Calling it again continues an
    interrupted import, or adds what is new.

    Args:
        source: The folder of a run or of several, as a path or a URL.
        target: Where the runs go.
        metadata: Metadata of the runs, in addition to their hyperparameters.
        storage_options: The options of the storage of source and target.
        progress: Show a progress bar on a terminal.
        report: Receives a sentence about each thing that was left out. By default it is logged.

    Returns:
        The paths of the imported runs.

    Raises:
        RunNotFound: There is no metrics.csv.
        CorruptFile: The metrics.csv is empty, or is not CSVLogger's.
        RunExists: A target holds another run.
    """
    storage = open_storage(source, storage_options, follow_links=True)
    folders = list(_folders(storage, "", _DEPTH))
    if not folders:
        raise RunNotFound(storage.url, f"there is no run of CSVLogger here: no {_METRICS}")
    runs = runs_of_folders(storage, {each: partial(_read, storage, each, report=report) for each in folders})
    return import_tracked(runs, "lightning", ImportOptions(target, metadata, storage_options, progress, report))


def _folders(storage: Storage, folder: str, depth: int) -> Iterator[str]:
    """Yield the folders with a metrics.csv. Folders below such a folder belong to its run."""
    names = storage.list(folder)
    if _METRICS in names:
        yield folder
    elif depth:
        for name in names:
            yield from _folders(storage, join(folder, name), depth - 1)


def _read(storage: Storage, folder: str, url: str, report: Report) -> Points:
    path = f"{url}/{_METRICS}"
    table = _table(storage.read(join(folder, _METRICS)), path, report)
    if _STEP not in table.column_names:
        raise CorruptFile(path, "it has no column step, which CSVLogger writes; import it by `tensortrial import csv`")
    names = {column: column for column in table.column_names if column != _STEP}
    points = points_of_columns(table, names, steps_of(table[_STEP], path), times_of(None, len(table)), path, report)
    return replace(points, metadata=_hyperparameters(storage, folder, url, report))


def _table(data: bytes, path: str, report: Report) -> pa.Table:
    whole, newline, rest = data.rpartition(b"\n")
    if not newline:
        raise CorruptFile(path, "it is empty: no metric was logged" if not data else "it has no row")
    if rest.strip():
        report(f"{path}: its last line, which is not written to its end")
    return csv_of(whole + newline, path, report)


def _hyperparameters(storage: Storage, folder: str, url: str, report: Report) -> dict[str, Any]:
    try:
        found = yaml_of(storage.read(join(folder, _HPARAMS)), f"{url}/{_HPARAMS}")
    except FileNotFoundError:
        return {}
    except (CorruptFile, MissingExtra) as exc:
        report(f"the hyperparameters: {exc}")
        return {}
    return clean(found)
