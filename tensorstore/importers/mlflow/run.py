"""A run of MLflow, as both of its stores keep it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...errors import CorruptFile
from ...storage.open import Storage
from ..metrics import Points, Report, joined
from ..point_list import PointList
from ..sources import files_below, url_of
from ..tables import column_like, is_table, points_of_columns, read_table, steps_of, times_of
from ..times import iso_time, nanoseconds

_STATUS = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
_PER_SECOND = 1000
"""The unit of MLflow's times."""


class Logged(NamedTuple):
    """A number that a run logged."""

    time: int
    """Milliseconds since 1970, UTC."""
    name: str
    step: int
    value: float


@dataclass(frozen=True)
class MLflowRun:
    """A run of MLflow."""

    run_id: str
    experiment: str
    name: str | None = None
    status: Any = None
    """The name of a status, or its number."""
    started_at: Any = None
    """Milliseconds since 1970, UTC."""
    ended_at: Any = None
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    def points(self, logged: Iterable[Logged], path: str, report: Report) -> Points:
        """Return the logged numbers and the metadata of the run."""
        found = PointList(path, report)
        # Each metric has a file of its own, and of two numbers of a step the later one counts.
        for number in sorted(logged, key=lambda number: number.time):
            found.add(number.name, number.step, number.value, nanoseconds(number.time, _PER_SECOND))
        return found.points({**self.params, "mlflow": self._about()})

    def _about(self) -> dict[str, Any]:
        about = {
            "run_id": self.run_id,
            "experiment": self.experiment,
            "run_name": self.name,
            "status": _STATUS.get(self.status, self.status),
            "started_at": iso_time(self.started_at, _PER_SECOND),
            "ended_at": iso_time(self.ended_at, _PER_SECOND),
            "tags": dict(self.tags),
        }
        return {key: value for key, value in about.items() if value not in (None, {})}


def with_artifacts(points: Points, storage: Storage, folder: str, report: Report) -> Points:
    """Return the points together with those of the tables in a folder of artifacts."""
    parts = [points]
    for path in sorted(files_below(storage, is_table, depth=8, folder=folder)):
        url = url_of(storage, path)
        try:
            table = read_table(storage, path, report)
            step, time = column_like(table, ("step", "global_step", "epoch")), column_like(table, ("timestamp",))
            if step is None:
                report(f"{url}: this table, because it has no column step, global_step or epoch")
                continue
            prefix = path.removeprefix(f"{folder}/")
            names = {column: f"{prefix}/{column}" for column in table.column_names if column not in (step, time)}
            times = times_of(table[time] if time else None, len(table))
            parts.append(points_of_columns(table, names, steps_of(table[step], url), times, url, report))
        except CorruptFile as exc:
            report(str(exc))
    return joined(parts)
