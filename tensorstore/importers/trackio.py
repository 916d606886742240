"""The import of Trackio's SQLite files. Trackio need not be installed.

from tensortrial.importers.trackio import import_runs

import_runs("~/.cache/huggingface/trackio/my-project.db", "runs")
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import CorruptFile, RunNotFound
from .documents import json_of
from .metrics import Points, Report, log
from .point_list import PointList
from .sqlite import Database, local_file
from .times import nanoseconds
from .tracked_runs import ImportOptions, TrackedRun, import_tracked

_TABLES = {"metrics": ("id", "timestamp", "run_name", "step", "metrics")}
# Trackio writes NaN and infinities as texts.
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}


def import_runs(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    metadata: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    report: Report = log,
) -> list[str]:
    """Import the runs that Trackio keeps at `source`.

    A run goes to the folder PROJECT/RUN of `target`. Numbers become scalars, with nested names such as `val.acc`, and
    histograms stay histograms. The configuration becomes metadata, and Trackio's own attributes of the run are in the
    metadata under `trackio`. Media and system metrics are left out. Calling it again continues an interrupted import,
    or adds new runs and what is new in others.

    Args:
        source: The SQLite file of a project, or the folder of all, such as ~/.cache/huggingface/trackio.
        target: The folder for the runs, as a path or a URL.
        metadata: Metadata of the runs, in addition to their own.
        storage_options: The options of the storage of the target.
        progress: Show a progress bar on a terminal.
        report: Receives a sentence about each thing that was left out. By default it is logged.

    Returns:
        The paths of the imported runs.

    Raises:
        RunNotFound: The source is missing, or has no run.
        CorruptFile: The source is not a file of Trackio, or has no number.
        StorageError: The SQLite file is in use.
        ConfigurationError: The source is not on a disk.
        RunExists: A target holds another run.
    """
    files = _files(os.path.expanduser(os.fspath(source)))
    return import_tracked(
        _runs(files, report), "trackio", ImportOptions(target, metadata, storage_options, progress, report)
    )


def _files(source: str) -> list[Path]:
    if "://" not in source and os.path.isdir(source):
        found = sorted(Path(source).absolute().glob("*.db"))
        if not found:
            raise RunNotFound(source, "there is no file of Trackio here: no file that ends with .db")
        return found
    return [local_file(source)]


def _runs(files: list[Path], report: Report) -> Iterator[TrackedRun]:
    found = False
    for path in files:
        try:
            database = Database(path, "a file of Trackio", _TABLES)
        except CorruptFile as exc:
            if len(files) == 1:
                raise
            report(str(exc))
            continue
        with closing(database):
            for run in _runs_of(database, path.stem, report):
                found = True
                yield run
    if not found:
        raise RunNotFound(", ".join(map(str, files[:3])), "Trackio has no run here")


def _runs_of(database: Database, project: str, report: Report) -> Iterator[TrackedRun]:
    # Before version 0.16, Trackio identified runs by their names.
    key = "run_id" if "run_id" in database.columns["metrics"] else "run_name"
    names = set[str]()
    runs = list(database.rows(f"SELECT {key}, min(run_name) FROM metrics GROUP BY {key} ORDER BY min(id)"))
    for run_id, run_name in runs:
        name = str(run_name)
        if name in names:
            name = f"{name} ({run_id})"
        names.add(name)
        source = f"{database.path}/{run_id}"
        about = {"project": project, "run_name": str(run_name), "run_id": str(run_id)}
        yield TrackedRun((project, name), source, partial(_read, database, key, run_id, about, source, report))


def _read(database: Database, key: str, run_id: Any, about: Mapping[str, Any], source: str, report: Report) -> Points:
    found = PointList(source, report)
    for step, time, text in database.rows(
        f"SELECT step, timestamp, metrics FROM metrics WHERE {key} = ? ORDER BY id", run_id
    ):
        try:
            values = _mapping(text, source)
        except CorruptFile as exc:
            report(f"{exc}; this row is left out")
            continue
        found.add_nested({name: _number(value) for name, value in values.items()}, step, _nanoseconds(time))
    config = dict[str, Any]()
    if key in database.columns.get("configs", ()):
        for (text,) in database.rows(f"SELECT config FROM configs WHERE {key} = ?", run_id):
            config.update(_mapping(text, source))
    if key in database.columns.get("system_metrics", ()):
        ((count,),) = database.rows(f"SELECT count(*) FROM system_metrics WHERE {key} = ?", run_id)
        if count:
            report(f"{source}: {count} rows of system metrics, which have no steps")
    known = {name: value for name, value in config.items() if not name.startswith("_")}
    own = {name.lstrip("_").lower(): value for name, value in config.items() if name.startswith("_") and value}
    return found.points({**known, "trackio": {**about, **own}})


def _mapping(text: Any, source: str) -> dict[str, Any]:
    if not isinstance(text, bytes | str):
        raise CorruptFile(source, f"a row must hold JSON, and holds {type(text).__name__}")
    found = json_of(text, source)
    if not isinstance(found, dict):
        raise CorruptFile(source, f"a row must hold a mapping, and holds {type(found).__name__}")
    return found


def _number(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _number(each) for name, each in value.items()}
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _nanoseconds(time: Any) -> int:
    try:
        # A time without a zone is local time.
        return nanoseconds(datetime.fromisoformat(time).timestamp())
    except (TypeError, ValueError, OverflowError, OSError):
        return 0
