"""The import of metrics: numbers with names and steps.

Every source of metrics, such as a CSV file or an export of W&B or Neptune, is read into `Points`; `import_points` makes
a run of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..config.metadata import checked_metadata
from ..errors import ConfigurationError, UnsupportedValue
from ..format.record import Plan, Record, ScalarBatch, Step
from ..format.schema import UNKNOWN_DTYPE, UNKNOWN_SHAPE, FirstFlush, RunInfo
from ..mode import ModeKeys
from ..progress import progress_bar
from ..storage.open import Storage
from .modes import MODES
from .numbers import Numbers, publish_numbers
from .target import WORKER, Begin, Found, begin_of, begun, claim_target, collection_of, run_info, writing

logger = logging.getLogger(__name__)

ROUNDED = "the last digits of {} whole numbers above 2**53, which a double does not hold, of {}"

_NOTHING = np.empty(0, np.uint8)

Integers = npt.NDArray[np.int64]
Report = Callable[[str], object]
"""Receives a sentence about each thing that could not be imported."""


class Drawn(NamedTuple):
    """A histogram with its name and step."""

    name: str
    step: int
    """The global step."""
    saved_at: int
    """Nanoseconds since 1970, UTC; 0 if unknown."""
    edges: list[float]
    counts: list[int]
    """One fewer than edges."""


@dataclass(frozen=True)
class Points:
    """Numbers with their names and steps, as columns of equal length, in any order."""

    names: Sequence[str]
    name: Integers
    """Indices into `names`, shape (n,)."""
    step: Integers
    """Global steps, shape (n,), none below 0."""
    value: npt.NDArray[np.float64]
    """The numbers, shape (n,)."""
    saved_at: Integers
    """Nanoseconds since 1970, UTC, shape (n,); 0 if unknown."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Other metadata of the run, as JSON values."""
    histograms: Sequence[Drawn] = ()
    modes: Sequence[ModeKeys] = (ModeKeys.GLOBAL,)
    """The modes that global steps count through: step s of `modes[i]` has the global step s * len(modes) + i."""

    def __len__(self) -> int:
        return len(self.step) + len(self.histograms)

    def by_step(self) -> Points:
        """Return the points by step and name. Of two points with the same step and name the last is kept."""
        order = np.lexsort((self.name, self.step))
        step, name = self.step[order], self.name[order]
        last = np.append((step[1:] != step[:-1]) | (name[1:] != name[:-1]), True)[: len(step)]
        return self._rows(order[last])

    def superseded(self) -> int:
        """Return the number of values that a later, different one of the same name and step replaces."""
        order = np.lexsort((self.name, self.step))
        step, name, value = self.step[order], self.name[order], self.value[order]
        same = (step[1:] == step[:-1]) & (name[1:] == name[:-1])
        changed = (value[1:] != value[:-1]) & ~(np.isnan(value[1:]) & np.isnan(value[:-1]))
        return int(np.count_nonzero(same & changed))

    def from_step(self, step: int) -> Points:
        """Return the points from a global step on."""
        later = [drawn for drawn in self.histograms if drawn.step >= step]
        return replace(self._rows(np.flatnonzero(self.step >= step)), histograms=later)

    def with_times(self, now: int) -> Points:
        """Return the points in the order of steps, each with a time: the last one of its step's numbers, or `now`."""
        begins = np.flatnonzero(np.diff(self.step, prepend=-1))
        latest = np.maximum.reduceat(self.saved_at, begins) if len(begins) else self.saved_at
        of_step = np.repeat(np.where(latest > 0, latest, now), np.diff(begins, append=len(self.step)))
        saved_at = np.where(self.saved_at > 0, self.saved_at, of_step)
        histograms = [drawn._replace(saved_at=drawn.saved_at or now) for drawn in self.histograms]
        return replace(self, saved_at=saved_at, histograms=histograms)

    def rows(self) -> Numbers:
        """Return the numbers as rows of a run. They must be in the order of steps."""
        mode_step, mode = np.divmod(self.step, len(self.modes))
        modes = np.array([mode.value for mode in self.modes])[mode]
        return Numbers(self.name, modes, mode_step, self.step, self.saved_at, self.value)

    def found(self) -> Found:
        """Return all values as columns to compare with a run. A number replaces a histogram of its name and step."""
        names = dict.fromkeys([*self.names, *(each.name for each in self.histograms)])
        number = {name: index for index, name in enumerate(names)}
        drawn = [(number[each.name], each.step, each.saved_at) for each in self.histograms]
        name, step, saved_at = np.array(drawn, np.int64).reshape(-1, 3).T
        return Found(
            list(number),
            np.concatenate([name, self.name]),
            np.concatenate([step, self.step]),
            np.concatenate([np.full(len(drawn), np.nan), self.value]),
            np.repeat([False, True], [len(drawn), len(self.value)]),
            np.concatenate([saved_at, self.saved_at]),
        )

    def _rows(self, rows: Integers) -> Points:
        return replace(
            self, name=self.name[rows], step=self.step[rows], value=self.value[rows], saved_at=self.saved_at[rows]
        )


def joined(parts: Sequence[Points], metadata: Mapping[str, Any] | None = None) -> Points:
    """Join the points of several parts of one run."""
    names = list(dict.fromkeys(name for part in parts for name in part.names))
    number = {name: i for i, name in enumerate(names)}
    renamed = [np.array([number[name] for name in part.names], np.int64)[part.name] for part in parts]
    together = dict[str, Any]()
    for part in parts:
        together.update(part.metadata)
    return Points(
        names,
        np.concatenate([np.empty(0, np.int64), *renamed]),
        np.concatenate([np.empty(0, np.int64), *(part.step for part in parts)]),
        np.concatenate([np.empty(0, np.float64), *(part.value for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.saved_at for part in parts)]),
        together | checked_metadata(metadata),
        [drawn for part in parts for drawn in part.histograms],
    )


def log(sentence: str) -> None:
    """Log a sentence about what was left out: the default report."""
    logger.warning("left out of the import: %s", sentence)


def import_points(
    points: Points, source: str, framework: str, target: Storage, progress: bool = True, report: Report = log
) -> str:
    """Write `points` into a run at `target`, and return its URL.

    A run of the same `source` is continued: all steps from the first one with something new are written, and replace
    those of the run.

    Raises:
        ConfigurationError: The earlier import counted the steps of other modes.
        RunExists: The target holds another run.
        UnsupportedValue: No tensor can have such a name.
    """
    if superseded := points.superseded():
        report(f"{source}: {superseded} numbers, because later ones have the same name and step")
    earlier = begun(target, source)
    modes = _modes(points, earlier, target)
    begin = Begin(0) if earlier is None else begin_of(target, points.found(), report)
    left = points.by_step().from_step(begin.step)
    plans = [_plan(name) for name in points.names]
    times = np.concatenate([points.saved_at, np.array([drawn.saved_at for drawn in points.histograms], np.int64)])
    run = run_info(source, framework, times, {**points.metadata, **modes})
    first_flush = claim_target(target, run, earlier, begin, plans, not len(left), report)
    if first_flush is not None:
        _write(left, plans, target, first_flush, progress)
    return target.url


def _modes(points: Points, earlier: RunInfo | None, target: Storage) -> dict[str, list[str]]:
    """Return the metadata that names the modes of a run; empty if GLOBAL is the only one."""
    names = [mode.name for mode in points.modes]
    if names == [ModeKeys.GLOBAL.name]:
        return {}
    if earlier is not None and (began := earlier.metadata.get(MODES, [ModeKeys.GLOBAL.name])) != names:
        raise ConfigurationError(
            f"{target.url} was imported when the source had steps of {', '.join(map(str, began))}, and it now has some "
            f"of {', '.join(names)}, which its global steps do not count: choose another target"
        )
    return {MODES: names}


def _plan(name: str) -> Plan:
    if not name:
        raise UnsupportedValue("a metric without a name cannot be imported: name its column")
    return Plan(name, (collection_of(name),), raw=False)


def _write(points: Points, plans: Sequence[Plan], target: Storage, first_flush: FirstFlush, progress: bool) -> None:
    points = points.with_times(int(datetime.now(UTC).timestamp() * 1e9))
    with progress_bar(len(points), progress, "import", "number") as advance:
        if not points.histograms:
            first_flush = publish_numbers(target, WORKER, first_flush, plans, points.rows(), advance)
        with writing(target, WORKER, first_flush) as writer:
            for step, records in _steps(points, plans) if points.histograms else ():
                mode_step, mode = divmod(step, len(points.modes))
                writer.put(Step(points.modes[mode], mode_step, step), records, closes=True)
                advance(sum(len(record.plans) if isinstance(record, ScalarBatch) else 1 for record in records))
            writer.close()


def _steps(points: Points, plans: Sequence[Plan]) -> Iterator[tuple[int, list[Record | ScalarBatch]]]:
    """Yield each step with its records. `points` must be in the order of steps."""
    bounds = np.flatnonzero(np.diff(points.step, prepend=-1, append=-1)).tolist()
    numbers = {int(points.step[begin]): slice(begin, end) for begin, end in pairwise(bounds)}
    histograms: dict[int, list[Drawn]] = {}
    for drawn in points.histograms:
        histograms.setdefault(drawn.step, []).append(drawn)
    for step in sorted(numbers.keys() | histograms.keys()):
        records: list[Record | ScalarBatch] = list(map(_record, histograms.get(step, ())))
        if step in numbers:
            rows = numbers[step]
            of = [plans[name] for name in points.name[rows].tolist()]
            records.append(ScalarBatch(of, points.value[rows].tolist(), points.saved_at[rows].tolist()))
        yield step, records


def _record(drawn: Drawn) -> Record:
    plan, counted = _histogram_plan(drawn.name), (drawn.edges, drawn.counts)
    return Record(plan, _NOTHING, drawn.saved_at, None, UNKNOWN_DTYPE, UNKNOWN_SHAPE, histogram=counted)


@cache
def _histogram_plan(name: str) -> Plan:
    return Plan(name, (), raw=False)
