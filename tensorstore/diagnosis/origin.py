"""The search for the weight whose changes grew before a spike: the layer in which the problem began."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from ..dtypes import Array
from ..mode import ModeKeys
from ..read.trial import Trial
from ..rules.builtin.base import training_mode
from ..rules.builtin.robust import robust_score
from ..rules.builtin.weights import as_numbers
from ..rules.reader import Selector, StepView, reader_of
from ..visible import in_a_line

_WEIGHTS = Selector(("weights",))
_SAVES = 40
"""The number of saves before the spike that are compared."""
_FEWEST = 10
"""The fewest earlier changes to compare with."""
_SCORE, _FACTOR = 6.0, 3.0
"""The robust z-score, and the multiple of the median change, above which a change is unusual."""
_IN_A_ROW = 2
"""The fewest consecutive unusual changes. A single one, at the spike, may be its consequence."""
_FEWEST_OTHERS = 3
"""The fewest weights whose median change is subtracted. A change of the learning rate affects all weights."""

_Weight = Array | float
"""The value of a weight, or only its norm."""


@dataclass(frozen=True)
class _Change:
    """A change of a weight since the previous save, relative to its norm, and its log relative to a common change."""

    step: int
    ratio: float
    log: float


@dataclass(frozen=True)
class Origin:
    """The first weight whose changes left their own past before a spike.

    Attributes:
        tensor: Its name.
        step: Global step from which on all its changes are larger than before.
        change: Its newest change, relative to its norm.
        usual: Its usual change before that step.
    """

    tensor: str
    step: int
    change: float
    usual: float

    def __str__(self) -> str:
        return (
            f"from step {self.step} on, {in_a_line(self.tensor)} changes more than in its past and more than other "
            f"weights: by {self.change:.3g} of its norm between two saves, where {self.usual:.3g} is usual"
        )


def origin(trial: Trial, step: int, worker: str | None) -> Origin | None:
    """Find the first weight that changed more than in its own past, and more than other weights, until a step.

    Only weights of `worker` are compared; if it is None, those of the first worker of each weight. The result is None
    if no weight left its past before the step, or weights were not saved.
    """
    left = [found for name, changes in _changes(trial, step, worker).items() if (found := _left(name, changes))]
    return min(left, key=lambda each: (each.step, each.usual / each.change, each.tensor), default=None)


def _changes(trial: Trial, step: int, worker: str | None) -> dict[str, list[_Change]]:
    """Return the changes of each weight in the last saves up to a step, in the order of steps."""
    reader = reader_of(trial)
    mode = training_mode(reader.modes())
    of_mode = set(reader.saved.steps_of_mode(mode))
    saves = [each for each in reader.steps_of(_WEIGHTS) if each <= step and each in of_mode]
    found: defaultdict[str, list[_Change]] = defaultdict(list)
    before: dict[str, _Weight] = {}
    recent = saves[-_SAVES:]
    distances = np.diff(recent, prepend=recent[:1])
    for at, each in enumerate(recent):
        now: dict[str, _Weight] = {}
        for view in reader.views(each):
            if mode in (view.mode, ModeKeys.GLOBAL):
                now |= _weights(view, worker)
        ratios = {name: _ratio(before[name], now[name]) for name in now.keys() & before.keys()}
        logs = {name: math.log(ratio) for name, ratio in ratios.items() if 0 < ratio < math.inf}
        if len(logs) >= _FEWEST_OTHERS:
            common = statistics.median(logs.values())
        else:  # as far as steps are saved more rarely than before; see `relative_distance`
            common = 2 * math.log(max(1.0, distances[at] / np.median(distances[1 : at + 1]))) if at else 0.0
        for name, log in logs.items():
            found[name].append(_Change(each, ratios[name], log - common))
        before = now
    return found


def _weights(view: StepView, worker: str | None) -> dict[str, _Weight]:
    """Return the value, or at least the norm, of each weight of a step."""
    numbers: dict[str, int] = {}
    for number in view.find(_WEIGHTS).tolist():
        name, of = view.tensors.keys[number]
        if of == worker or (worker is None and name not in numbers):
            numbers[name] = number
    raw = [row for row in view.rows(np.array([*numbers.values()], np.intp)) if row.has_raw]
    values = {row.name: as_numbers(value) for row, value in zip(raw, view.values(raw), strict=True)}
    found: dict[str, _Weight] = {name: value for name, value in values.items() if value is not None}
    others = np.array([number for name, number in numbers.items() if name not in found], np.intp)
    norms, _ = view.measure(others, ("l2",))
    return found | {row.name: norm for row, (norm,) in norms}


def _ratio(before: _Weight, now: _Weight) -> float:
    """Return the norm of a weight's change relative to the norm of the weight; NaN if unknown."""
    with np.errstate(all="ignore"):
        if isinstance(before, float) or isinstance(now, float):
            before, now = (np.asarray(np.linalg.norm(each)) for each in (before, now))
        elif before.shape != now.shape:
            return math.nan
        norm = float(np.linalg.norm(before))
        return float(np.linalg.norm(now - before)) / norm if norm else math.nan


def _left(name: str, changes: list[_Change]) -> Origin | None:
    """Return the origin for a weight that has left its past; else None."""
    past: list[float] = []
    since: int | None = None
    for position, change in enumerate(changes):
        score, median = robust_score(change.log, past) if len(past) >= _FEWEST else (0.0, change.log)
        if score > _SCORE and change.log - median > math.log(_FACTOR):
            since = position if since is None else since
        else:
            past.append(change.log)
            since = None
    if since is None or len(changes) - since < _IN_A_ROW:
        return None
    usual = statistics.median(change.ratio for change in changes[:since])
    return Origin(name, changes[since].step, changes[-1].ratio, usual)
