"""MLflow's store in SQLite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import unquote

from ...errors import ConfigurationError, RunNotFound
from ...storage.open import open_storage
from ..metrics import Points, Report
from ..sqlite import Database, local_file
from ..tracked_runs import TrackedRun
from .run import Logged, MLflowRun, with_artifacts

_TABLES = {
    "experiments": ("experiment_id", "name"),
    "runs": ("run_uuid", "experiment_id", "status", "start_time", "end_time", "lifecycle_stage", "artifact_uri"),
    "metrics": ("run_uuid", "key", "value", "timestamp", "step", "is_nan"),
    "params": ("run_uuid", "key", "value"),
    "tags": ("run_uuid", "key", "value"),
}
# In SQLite, MLflow stores the largest number in place of infinity.
_INFINITY = 1.7976931348623157e308


def runs_of_database(source: str, artifacts: bool, report: Report) -> Iterator[TrackedRun]:
    """Yield the runs in an SQLite file. Raises RunNotFound if it has none, CorruptFile if MLflow did not write it."""
    with closing(Database(local_file(source), "a store of MLflow", _TABLES)) as database:
        yield from _runs(database, artifacts, report)


def _runs(database: Database, artifacts: bool, report: Report) -> Iterator[TrackedRun]:
    name = "r.name" if "name" in database.columns["runs"] else "NULL"
    rows = list(
        database.rows(
            f"SELECT r.run_uuid, e.name, {name}, r.status, r.start_time, r.end_time, r.artifact_uri, r.lifecycle_stage "
            "FROM runs r LEFT JOIN experiments e USING (experiment_id) ORDER BY r.start_time, r.run_uuid"
        )
    )
    if not rows:
        raise RunNotFound(database.path, "this store of MLflow has no run")
    for run_id, experiment, run_name, status, started_at, ended_at, artifact_uri, stage in rows:
        source = f"{database.path}/{run_id}"
        if stage == "deleted":
            report(f"{source}: this run, because it was deleted")
            continue
        run = MLflowRun(str(run_id), str(experiment or ""), run_name, status, started_at, ended_at)
        read = partial(_read, database, run, source, str(artifact_uri or "") if artifacts else None, report)
        yield TrackedRun((run.experiment, run.run_id), source, read)


def _read(database: Database, run: MLflowRun, source: str, artifact_uri: str | None, report: Report) -> Points:
    numbers = database.rows(
        "SELECT timestamp, key, step, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY timestamp, rowid",
        run.run_id,
    )
    logged = [
        Logged(_whole(time), str(key), step, float("nan") if is_nan else _infinite(value))
        for time, key, step, value, is_nan in numbers
    ]
    tags = _texts(database, "tags", run)
    name = run.name or tags.get("mlflow.runName")
    whole = replace(run, name=name, params=_texts(database, "params", run), tags=tags)
    points = whole.points(logged, source, report)
    if artifact_uri is None:
        return points
    if (folder := _local(artifact_uri)) is None:
        report(f"{source}: its artifacts at {artifact_uri!r}, which is not a folder on a disk")
        return points
    try:
        return with_artifacts(points, open_storage(folder, follow_links=True), "", report)
    except ConfigurationError as exc:
        report(f"{source}: its artifacts: {exc}")
        return points


def _texts(database: Database, table: str, run: MLflowRun) -> dict[str, str]:
    rows = database.rows(f"SELECT key, value FROM {table} WHERE run_uuid = ?", run.run_id)
    return {str(key): str(value) for key, value in rows}


def _whole(time: Any) -> int:
    return time if isinstance(time, int) else 0


def _infinite(value: Any) -> Any:
    if isinstance(value, float) and abs(value) == _INFINITY:
        return value * 10
    return value


def _local(uri: str) -> str | None:
    """Return the folder of artifacts; None unless it is a path or a file URI."""
    if uri.startswith("file://"):
        return unquote(uri.removeprefix("file://"))
    return uri if os.path.isabs(uri) else None
