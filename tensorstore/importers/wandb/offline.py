"""The import of .wandb files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...errors import CorruptFile
from ...storage.open import Storage
from ...tfevents.wire import fields, message
from ..metrics import Points, Report
from ..point_list import PointList
from ..sources import find_files
from ..times import nanoseconds
from ..tracked_runs import TrackedRun
from . import messages
from .log_file import records

_ENDING = ".wandb"
_LATEST_LINK = "latest-run"
_BEGUN = re.compile(r"(?:^|/)(?:offline-)?run-(\d{8}_\d{6})-[^/]*/[^/]*$")
_IGNORED = frozenset({"_step", "_timestamp"})
_SHOWN = 3


def find_runs(
    source: str | os.PathLike[str], storage_options: Mapping[str, Any] | None, report: Report
) -> list[TrackedRun]:
    """Return the runs in a .wandb file, or in a folder of them; [] for another file or folder."""
    storage, found, _ = find_files(source, storage_options, lambda name: name.lower().endswith(_ENDING), depth=3)
    runs: dict[str, list[str]] = {}
    for path in sorted(found, key=_by_time):
        if _LATEST_LINK not in path.split("/"):
            run_id = path.rpartition("/")[2][: -len(_ENDING)].removeprefix("run-")
            runs.setdefault(run_id, []).append(path)
    alone = len(runs) == 1 and all("/" not in path for paths in runs.values() for path in paths)
    return [_run(() if alone else (run_id,), storage, paths, report) for run_id, paths in runs.items()]


def _by_time(path: str) -> tuple[str, str]:
    """Return the sort key of a file: the time at which it was begun, from `run-DATE_TIME-ID`, then its path.

    A folder `offline-run-DATE_TIME-ID` may hold a part of the same run.
    """
    begun = _BEGUN.search(path)
    return begun[1] if begun else "", path


def _run(folders: tuple[str, ...], storage: Storage, paths: Sequence[str], report: Report) -> TrackedRun:
    source = f"{storage.url}/{paths[0]}"
    return TrackedRun(folders, source, partial(_read, storage, paths, source, report))


def _read(storage: Storage, paths: Sequence[str], source: str, report: Report) -> Points:
    reader = _RunReader(source, report)
    damage: CorruptFile | None = None
    for path in paths:
        try:
            reader.read(storage.read(path), f"{storage.url}/{path}")
        except CorruptFile as exc:
            if len(paths) == 1:
                raise
            damage = exc
            report(str(exc))
    points = reader.points()
    if damage is not None and not len(points):
        raise damage
    return points


class _RunReader:
    """A reader of the files of one run, from the oldest."""

    def __init__(self, source: str, report: Report) -> None:
        self._source, self._report = source, report
        self._points = PointList(source, report)
        self._about: dict[str, Any] = {}
        self._config: dict[str, Any] = {}
        self._summary: dict[str, Any] = {}
        self._logged = set[str]()
        self._stats = 0

    def read(self, data: bytes, url: str) -> None:
        """Read a file, and report damaged records."""
        damage = list[str]()
        for record in records(data, url, damage.append):
            try:
                for field, body in fields(record):
                    if not isinstance(body, int):
                        self._take(field, message(body), url)
            except (ValueError, RecursionError) as exc:  # a CorruptFile is one
                damage.append(str(exc))
        if damage:
            more = f", and {len(damage) - _SHOWN} more" if len(damage) > _SHOWN else ""
            self._report(f"{url}: {'; '.join(damage[:_SHOWN])}{more}")

    def points(self) -> Points:
        """Return the logged values with the configuration."""
        if self._stats:
            self._report(f"{self._source}: {self._stats} records of system metrics")
        config = {key: value for key, value in self._config.items() if key != "_wandb"}
        if summary := {key: value for key, value in self._summary.items() if self._is_extra(key, value)}:
            self._about["summary"] = summary
        about = {key: value for key, value in self._about.items() if value not in ("", [])}
        return self._points.points({**config, "wandb": about})

    def _is_extra(self, key: str, value: Any) -> bool:
        """Return whether a value is in the summary only, and not logged at a step."""
        is_media = isinstance(value, Mapping) and "_type" in value
        return key not in self._logged and not key.startswith("_") and not is_media

    def _take(self, field: int, body: memoryview, url: str) -> None:
        if field == messages.HISTORY:
            self._log(*messages.history_of(body, url))
        elif field == messages.RUN:
            about, config = messages.run_of(body, url)
            self._about.update(about)
            self._config.update(config)
            self._branch(messages.branch_of(body), url)
        elif field == messages.SUMMARY:
            messages.update_config(self._summary, body, url)
        elif field == messages.METRIC:
            name, step_metric = messages.step_metric_of(body)
            if name and step_metric:
                self._about.setdefault("step_metrics", {})[name] = step_metric
        elif field == messages.CONFIG:
            messages.update_config(self._config, body, url)
        elif field == messages.EXIT:
            self._about["exit_code"] = messages.exit_code_of(body)
        elif field == messages.STATS:
            self._stats += 1

    def _branch(self, branch: tuple[str, int] | None, url: str) -> None:
        if branch is None:
            return
        run, step = branch
        if run != self._about.get("run_id"):
            self._about["forked_from"] = {"run_id": run, "step": step}
        elif discarded := self._points.discard_after(step):
            self._report(f"{url}: {discarded} earlier values after step {step}, because the run went back to this step")

    def _log(self, values: Mapping[str, Any], step: int | None) -> None:
        self._logged.update(values)
        saved_at = nanoseconds(values.get("_timestamp"))
        self._points.add_nested(values, values.get("_step", step), saved_at, _IGNORED)
