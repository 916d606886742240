"""MLflow's store of files: EXPERIMENT_ID/RUN_ID/{meta.yaml,metrics,params,tags}."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ...errors import CorruptFile, RunNotFound
from ...storage.base import join
from ...storage.open import Storage, open_storage
from ..documents import text_of, yaml_of
from ..metrics import Points, Report
from ..sources import url_of
from ..tracked_runs import TrackedRun
from .run import Logged, MLflowRun, with_artifacts

_META = "meta.yaml"
_PARTS = {"metrics", "params", "tags"}
_DEPTH = 16
_NOT_METRICS = 3  # the number of damaged lines in a message


def runs_of_folder(
    source: str, storage_options: Mapping[str, Any] | None, artifacts: bool, report: Report
) -> Iterator[TrackedRun]:
    """Yield the runs in a store, an experiment or the folder of a run. Raises RunNotFound if there is none."""
    storage = open_storage(source, storage_options, follow_links=True)
    names = storage.list("")
    if _META in names and _PARTS & set(names):
        yield TrackedRun((), storage.url, partial(_read, storage, "", "", artifacts, report))
        return
    experiments = [""] if _META in names else [name for name in names if not name.startswith(".")]
    found = False
    for experiment in experiments:
        if _META not in storage.list(experiment):
            continue
        name = _experiment_name(storage, experiment, report)
        for run in storage.list(experiment):
            folder = join(experiment, run)
            if _META in (inside := storage.list(folder)) and _PARTS & set(inside):
                found = True
                read = partial(_read, storage, folder, name, artifacts, report)
                if not _is_deleted(storage, folder, report):
                    yield TrackedRun((name, run), f"{storage.url}/{folder}", read)
    if not found:
        raise RunNotFound(storage.url, _nothing_here(storage))


def _nothing_here(storage: Storage) -> str:
    if not storage.exists_any():
        return "there is nothing here"
    above = os.path.dirname(storage.url)
    hint = ""
    if storage.is_local and os.path.isfile(os.path.join(above, "mlflow.db")):
        hint = f"; MLflow kept it in {above}/mlflow.db, and only artifacts here"
    return f"there is no run of MLflow here: no folder with {_META} next to metrics, params or tags{hint}"


def _experiment_name(storage: Storage, experiment: str, report: Report) -> str:
    try:
        return text_of(_meta(storage, experiment).get("name")) or experiment or storage.url.rpartition("/")[2]
    except CorruptFile as exc:
        report(str(exc))
        return experiment or storage.url.rpartition("/")[2]


def _is_deleted(storage: Storage, folder: str, report: Report) -> bool:
    try:
        meta = _meta(storage, folder)
    except CorruptFile:
        return False  # the error is reported when the run is read
    if meta.get("lifecycle_stage") == "deleted":
        report(f"{storage.url}/{folder}: this run, because it was deleted")
        return True
    return False


def _meta(storage: Storage, folder: str) -> dict[str, Any]:
    path = join(folder, _META)
    return yaml_of(storage.read(path), f"{storage.url}/{path}")


def _read(storage: Storage, folder: str, experiment: str, artifacts: bool, report: Report) -> Points:
    meta, tags = _meta(storage, folder), _texts(storage, join(folder, "tags"), report)
    run = MLflowRun(
        run_id=text_of(meta.get("run_id")) or storage.url.rpartition("/")[2],
        experiment=experiment or str(meta.get("experiment_id", "")),
        name=text_of(meta.get("run_name")) or tags.get("mlflow.runName"),
        status=meta.get("status") if isinstance(meta.get("status"), int | str) else None,
        started_at=meta.get("start_time"),
        ended_at=meta.get("end_time"),
        params=_texts(storage, join(folder, "params"), report),
        tags=tags,
    )
    metrics, url = join(folder, "metrics"), url_of(storage, folder)
    logged = [
        number
        for name, data in _read_files(storage, metrics, report)
        for number in _metric(name, data, f"{storage.url}/{metrics}/{name}", report)
    ]
    points = run.points(logged, url, report)
    if not artifacts:
        return points
    return with_artifacts(points, storage, join(folder, "artifacts"), report)


def _metric(name: str, data: bytes, path: str, report: Report) -> Iterator[Logged]:
    """Yield the numbers in a file of lines `milliseconds value step`."""
    lines = data.split(b"\n")
    wrong = []
    if lines[-1]:
        wrong.append(lines[-1])  # the last line is incomplete
    for line in lines[:-1]:
        fields = line.split()
        try:
            # MLflow 0 had no steps; MLflow 3 writes more after the step.
            yield Logged(int(fields[0]), name, int(fields[2]) if len(fields) > 2 else 0, float(fields[1]))
        except (ValueError, IndexError):
            if line.strip():
                wrong.append(line)
    if wrong:
        shown = ", ".join(repr(line[:40].decode(errors="replace")) for line in wrong[:_NOT_METRICS])
        report(f"{path}: {len(wrong)} lines that are incomplete or hold no number: {shown}")


def _texts(storage: Storage, folder: str, report: Report) -> dict[str, str]:
    return {name: data.decode(errors="replace") for name, data in _read_files(storage, folder, report)}


def _read_files(storage: Storage, folder: str, report: Report) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the files below a folder. An empty folder, or one in itself, is reported."""
    for name in _files(storage, folder):
        try:
            yield name, storage.read(f"{folder}/{name}")
        except CorruptFile as exc:
            report(f"{storage.url}/{exc}")


def _files(storage: Storage, folder: str, depth: int = _DEPTH) -> Iterator[str]:
    """Yield the paths of files below a folder; such a path is a name, such as train/loss."""
    for name in storage.list(folder):
        below = list(_files(storage, f"{folder}/{name}", depth - 1)) if depth else []
        if below:
            yield from (f"{name}/{each}" for each in below)
        else:
            yield name
