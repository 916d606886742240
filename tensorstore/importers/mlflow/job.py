"""The import of MLflow's stores: a folder of files, or SQLite. MLflow need not be installed.

from tensortrial.importers.mlflow import import_runs

import_runs("mlflow.db", "runs/mlflow")
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from ...errors import ConfigurationError
from ..metrics import Report, log
from ..sqlite import is_sqlite
from ..tracked_runs import ImportOptions, import_tracked
from .database import runs_of_database
from .file_store import runs_of_folder

_SQLITE, _FILE = "sqlite:///", "file://"


def import_runs(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    artifacts: bool = False,
    metadata: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    report: Report = log,
) -> list[str]:
    """Import the runs of the MLflow store at `source`.

    Metrics become scalars, parameters become metadata, and MLflow's own attributes of the run (name, experiment,
    status, times, tags) are in the metadata under `mlflow`. A run goes to the folder EXPERIMENT/RUN_ID of `target`. Of
    several numbers of one metric and step the last logged one is kept. Deleted runs are left out. Calling it again
    continues an interrupted import, or adds new runs and what is new in others.

    Args:
        source: The folder `mlruns`, the folder of an experiment or of a run in it, or an SQLite file. A tracking URI
            such as sqlite:///mlflow.db is also accepted. A folder may be a URL such as s3://bucket/mlruns.
        target: The folder for the runs; if `source` is the folder of one run, the folder of that run.
        artifacts: Also import tables of numbers, in CSV or Parquet, from the artifacts of a run: each column becomes a
            scalar with the name FILE/COLUMN.
        metadata: Metadata of the runs, in addition to their own.
        storage_options: The options of the storage of source and target.
        progress: Show a progress bar on a terminal.
        report: Receives a sentence about each thing that was left out. By default it is logged.

    Returns:
        The paths of the imported runs.

    Raises:
        RunNotFound: The source is missing, or has no run.
        CorruptFile: The source is not a store of MLflow, or has no number.
        StorageError: The SQLite file is in use.
        MissingExtra: PyYAML, which reads a store of files, is not installed.
        ConfigurationError: The source is a server, or an SQLite file that is not on a disk.
        RunExists: A target holds another run.
    """
    text = os.fspath(source)
    if text.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"a server of MLflow cannot be read: instead of {text}, pass the folder or the SQLite file of its store"
        )
    if text.startswith(_FILE):
        text = unquote(text.removeprefix(_FILE))
    text = text.removeprefix(_SQLITE)  # four slashes begin an absolute path
    options = ImportOptions(target, metadata, storage_options, progress, report)
    if is_sqlite(text):
        return import_tracked(runs_of_database(text, artifacts, report), "mlflow", options)
    return import_tracked(runs_of_folder(text, storage_options, artifacts, report), "mlflow", options)
