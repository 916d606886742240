"""The content of a plot: names, statistic, mode, worker and steps, checked and as SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ..config.collection import Collection, CollectionKeys
from ..errors import ConfigurationError
from ..mode import ModeKeys, checked_range
from ..read.name_filter import belongs_to
from ..read.plots import Names
from ..read.runs import Runs
from ..read.trial import Trial, run_reader_of
from ..snapshot.saved_steps import StepRange
from ..statistics.computed import NOTHING, Computed, from_raw
from ..statistics.definitions import parse_statistic
from ..suggestions import near_names

VALUE = "value"
ZERO_FRACTION = "zero_fraction"
_LAST = 2**62


@dataclass(frozen=True)
class Selection:
    """The part of one or several runs that a plot shows."""

    what: str
    """The description of the names, for a title: a collection or patterns."""
    names: tuple[str, ...]
    statistic: str
    mode: ModeKeys
    worker: str | None
    first: int
    end: int
    computed: Computed = NOTHING
    """Values that were not saved."""

    @property
    def step_column(self) -> str:
        """The column that counts the steps of the mode."""
        return "global_step" if self.mode is ModeKeys.GLOBAL else "mode_step"

    @property
    def step_label(self) -> str:
        """The label of an axis of steps."""
        return "global step" if self.mode is ModeKeys.GLOBAL else f"step of {self.mode.name}"

    @property
    def value_label(self) -> str:
        """The label of an axis of values."""
        return self.statistic.replace("_", " ")

    @property
    def rows(self) -> str:
        """A SELECT of the chosen rows: all columns of the view `tensors`, and `step` and `value`."""
        value = {VALUE: "scalar", ZERO_FRACTION: "zero_count / nullif(list_product(shape), 0)"}.get(self.statistic)
        value = value or self.computed.expression(self.statistic)
        return f"select *, {self.step_column} as step, {value} as value from {self.computed.source} where {self.where}"

    def has_values(self, trial: Trial) -> bool:
        """Return whether a run has a value of the chosen tensors."""
        query = f"select exists (from ({self.rows}) where value is not null)"
        return bool(run_reader_of(trial).sql(query, self.parameters).fetchall()[0][0])

    def with_raw(self, trial: Trial) -> Selection:
        """Return the selection of one run, with the statistic computed for tensors with only raw values."""
        if self.statistic in (VALUE, ZERO_FRACTION):
            return self
        return replace(self, computed=from_raw(run_reader_of(trial), [self.statistic], self.where, self.parameters))

    @property
    def where(self) -> str:
        """The condition that chooses the rows."""
        return (
            "list_contains($names, name) and ($mode = 'GLOBAL' or mode = $mode) "
            f"and ($worker is null or worker = $worker) and {self.step_column} >= $first and {self.step_column} < $end"
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of `rows`."""
        return {
            **self.computed.parameters,
            "names": list(self.names),
            "mode": self.mode.name,
            "worker": self.worker,
            "first": self.first,
            "end": self.end,
        }


def select(
    trials: Sequence[Trial],
    names: Names,
    statistic: str | None,
    mode: ModeKeys | str,
    worker: str | None,
    steps: StepRange | None,
) -> Selection:
    """Return the selection of a plot of one or several runs. Raises ConfigurationError if none of them has it.

    Without names, the scalars are the losses, else the metrics; all if no run has a number of either.
    """
    if names is None and statistic is None:
        for key in (CollectionKeys.LOSSES, CollectionKeys.METRICS):
            if any(trial.tensor_names(collection=Collection(key)) for trial in trials):
                chosen = select(trials, key, None, mode, worker, steps)
                if any(chosen.has_values(trial) for trial in trials):
                    return chosen
    patterns = None if names is None else _patterns(names)
    found = list(dict.fromkeys(name for trial in trials for name in _matching(trial, patterns)))
    if not found:
        raise _no_match(trials, patterns)
    if worker is not None and not any(worker in trial.workers() for trial in trials):
        known = ", ".join(dict.fromkeys(each for trial in trials for each in trial.workers()))
        raise ConfigurationError(f"unknown worker {worker!r}; the workers are: {known}")
    parsed = statistic if statistic in (None, VALUE, ZERO_FRACTION) else parse_statistic(statistic)
    first, end = (None, None) if steps is None else checked_range(steps, "steps")
    what = "all tensors" if patterns is None else ", ".join(patterns)
    return Selection(
        what,
        tuple(found),
        parsed or VALUE,
        ModeKeys.parse(mode),
        worker,
        0 if first is None else first,
        _LAST if end is None else end,
    )


def selection_of(source: Trial | Runs, *arguments: Any) -> Selection:
    """Return the selection of a plot of one or several runs; see `select`. For one run, with computed statistics."""
    if isinstance(source, Trial):
        return select([source], *arguments).with_raw(source)
    trials = [source.trial(name) for name in source.names]
    try:
        return select(trials, *arguments)
    finally:
        for trial in trials:
            trial.close()


def nothing_saved(chosen: Selection) -> ConfigurationError:
    """Return the error of a selection of tensors that have no value to plot."""
    where = "" if chosen.mode is ModeKeys.GLOBAL else f" in mode {chosen.mode.name}"
    where += "" if chosen.worker is None else f" by worker {chosen.worker}"
    if (chosen.first, chosen.end) != (0, _LAST):
        where += f" at steps {chosen.first} <= step < {'…' if chosen.end == _LAST else chosen.end}"
    missing = "scalar value; pass a statistic, such as 'l2'" if chosen.statistic == VALUE else chosen.statistic
    return ConfigurationError(f"none of {len(chosen.names)} matching tensors has a saved {missing}{where}")


def _patterns(names: str | Iterable[str]) -> list[str]:
    patterns = [names] if isinstance(names, str) else list(names) if np.iterable(names) else []
    if not patterns or not all(isinstance(each, str) and each for each in patterns):
        raise ConfigurationError(f"names must be a name, a collection, a pattern or several, got {names!r:.200}")
    return patterns


def _matching(trial: Trial, patterns: Sequence[str] | None) -> list[str]:
    saved = run_reader_of(trial).tensors(ModeKeys.GLOBAL)
    if patterns is None:
        return [name for name, _ in saved]
    return [
        name
        for name, collections in saved
        if name in patterns or any(belongs_to(name, collections, each) or fnmatchcase(name, each) for each in patterns)
    ]


def _no_match(trials: Sequence[Trial], patterns: Sequence[str] | None) -> ConfigurationError:
    if patterns is None:
        return ConfigurationError("no tensor was saved yet")
    full = [name for trial in trials for name, each in trial.collections().items() if each.tensor_names]
    known = list(dict.fromkeys(full)) + [name for trial in trials for name in trial.tensor_names()]
    near = near_names(patterns[0], known)
    meant = f"did you mean {near[0]!r}? " if near else ""
    collections = ", ".join(sorted(set(full)))
    return ConfigurationError(
        f"no tensor or collection matches {', '.join(map(repr, patterns))}; {meant}`*` stands for any text; "
        f"collections with tensors: {collections or 'none'}"
    )
