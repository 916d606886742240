"""A run as the page reads it: its trial, its tiles, and what is kept of it until it grows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import ConfigurationError
from ..format.schema import FINDINGS, RunInfo
from ..mode import ModeKeys
from ..read.catalogue import parquet_files
from ..read.trial import Trial, run_reader_of
from ..statistics.definitions import STATISTICS
from ..statistics.derived import expression as derived_expression
from .grid import Grid
from .steps import ModeSteps, mode_steps, modes_of
from .tiles import Choice, Tiles

_T = TypeVar("_T")

VALUE = "value"
"""The name of the statistic that is the value of a tensor of one element."""
# Besides the saved statistics: what is made of them, and the SQL for it.
_MADE = {VALUE: "scalar", "zero_fraction": "zero_count / nullif(list_product(shape), 0)"}


class OpenRun:
    """One run that the page shows. Safe to use from several threads."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self._reader = run_reader_of(trial)
        self._lock = threading.Lock()
        self._kept: dict[Any, tuple[int, Any]] = {}
        self.tiles = Tiles(self._reader.storage, lambda: self._reader.catalogue.index_files())
        self.new_findings: list[dict[str, Any]] = []
        """What rules found that were run from the page; the run itself is not written to."""

    @property
    def name(self) -> str:
        return self.trial.name

    @property
    def info(self) -> RunInfo:
        return self.trial.info

    @property
    def version(self) -> int:
        """Grows with each refresh that found something new."""
        return self._reader.catalogue.version

    @property
    def damaged(self) -> list[str]:
        """What cannot be read, and why, as sentences."""
        return [f"{path}: {error}" for path, error in self._reader.damaged.items()]

    def refresh(self) -> int:
        """Find new data. Return the version."""
        self._reader.refresh()
        return self.version

    def state(self) -> tuple[int, bool, tuple[str, ...]]:
        """Return what differs when there is something new to show: data, the end of the job, findings."""
        ended = self.trial.loaded_all_steps
        findings = parquet_files(self._reader.storage, FINDINGS)
        return self.refresh(), ended, (*findings, str(len(self.new_findings)))

    def kept(self, key: Any, make: Callable[[], _T]) -> _T:
        """Return what `make` makes, which is kept until the run grows."""
        version = self.refresh()
        with self._lock:
            found = self._kept.get(key)
        if found is None or found[0] != version:
            found = version, make()
            with self._lock:
                self._kept[key] = found
        return found[1]

    @property
    def modes(self) -> list[str]:
        return self.kept("modes", lambda: modes_of(self.trial))

    def steps(self, mode: str) -> ModeSteps:
        """Return the saved steps of a mode."""
        return self.kept(("steps", mode), lambda: mode_steps(self.trial, mode))

    @property
    def names(self) -> list[str]:
        """The names of all tensors, in the order of execution as far as it was saved."""
        return self.kept("names", self._names)

    def _names(self) -> list[str]:
        known = [name for name, _ in self._tensors()]
        first, last = self._outer_steps()
        rows = self.trial.sql(
            'select name, min("order") as place from tensors where global_step in ($first, $last) group by name',
            {"first": first, "last": last},
        ).fetchall()
        places = {name: place for name, place in rows if place is not None}
        return sorted(known, key=lambda name: (name not in places, places.get(name, 0)))

    @property
    def collections(self) -> dict[str, list[str]]:
        """The collections of each tensor."""
        return self.kept("collections", lambda: {name: list(of) for name, of in self._tensors()})

    def _tensors(self) -> list[tuple[str, Any]]:
        return self._reader.tensors(ModeKeys.GLOBAL)

    def _outer_steps(self) -> tuple[int, int]:
        steps = self.steps("GLOBAL")
        # The newest step may be incomplete: a few steps before, all workers have been.
        return (steps.first, int(steps.steps[-min(len(steps.steps), 8)])) if len(steps.steps) else (0, 0)

    @property
    def statistics(self) -> list[str]:
        """The statistics that were saved, or follow from saved ones, of the first or the last steps."""
        return self.kept("statistics", self._statistics)

    def _statistics(self) -> list[str]:
        names = [*STATISTICS, *_MADE]
        counts = ", ".join(f'count({self.expression(name)}) as "{name}"' for name in names)
        first, last = self._outer_steps()
        rows = self.trial.sql(
            f"select {counts} from tensors where global_step in ($first, $last)", {"first": first, "last": last}
        ).fetchall()
        return [name for name, count in zip(names, rows[0], strict=True) if count]

    def expression(self, statistic: str) -> str:
        """Return SQL over the view `tensors` for a statistic."""
        return _MADE.get(statistic) or derived_expression(statistic)

    def grid(self, statistic: str, mode: str, worker: str, bounds: tuple[int | None, int | None], columns: int) -> Grid:
        """Return the tiles of a statistic, rows in the order of execution.

        Args:
            statistic: One of `statistics`.
            mode: The mode whose steps are counted.
            worker: One worker; "" for all.
            bounds: The first step and the step after the last; None for all.
            columns: The most columns.

        Returns:
            The tiles.
        """
        if statistic not in self.statistics:
            known = ", ".join(self.statistics)
            raise ConfigurationError(f"unknown statistic {statistic!r}; the statistics of {self.name} are: {known}")
        first, end = self.bounded(mode, bounds)
        choice = Choice(self._lean_expression(statistic), mode, worker)
        last = max(self.steps(mode).end - 1, 0)
        return self.tiles.grid(choice, first, end, columns, last).ordered(self.names)

    def bounded(self, mode: str, bounds: tuple[int | None, int | None]) -> tuple[int, int]:
        """Return the first step and the step after the last one of a range, as far as the mode has steps."""
        steps = self.steps(mode)
        first = steps.first if bounds[0] is None else max(bounds[0], 0)
        end = steps.end if bounds[1] is None else min(bounds[1], steps.end)
        return first, max(end, first + 1)

    def _lean_expression(self, statistic: str) -> str:
        """Return the saved column where all tensors have it: to derive it, other columns would be read."""
        if statistic in _MADE:
            return _MADE[statistic]

        def lean() -> bool:
            first, last = self._outer_steps()
            derived = derived_expression(statistic)
            rows = self.trial.sql(
                f'select count("{statistic}"), count({derived}) from tensors where global_step in ($first, $last)',
                {"first": first, "last": last},
            ).fetchall()
            return bool(rows[0][0] == rows[0][1])

        return f'"{statistic}"' if self.kept(("lean", statistic), lean) else derived_expression(statistic)
