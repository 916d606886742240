"""Rules that compare two runs, or the workers of one run."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import numpy as np

from ...errors import InvalidRuleParameter
from ...format.index_types import SavedTensor
from ...read.opening import create_trial
from ...read.trial import Trial
from ...statistics.definitions import STATISTICS
from ..parameter import number, regexes, words
from ..reader import Measured, Selector, StepView, reader_of
from .base import BuiltinRule, SelectingRule

_RTOL, _ATOL = 1e-5, 1e-8


class SimilarAcrossRuns(SelectingRule):
    """Fires if tensors of two runs differ at a step.

    Raw values are compared by `numpy.allclose`, with rtol 1e-5 and atol 1e-8. If one is missing, the statistics that
    both runs saved are compared. A name that only one run has at the step is a finding, too. Evaluates all tensors,
    unless some are selected. Each worker is compared with the one of the same name, or of the same place if no name is
    in both runs. `other_trials` is the other run: a trial or a path.
    """

    def __init__(self, base_trial: Trial, other_trials: Any = None, *args: Any, **parameters: Any) -> None:
        super().__init__(base_trial, *args, other_trials=_opened(other_trials), **parameters)

    def check(self) -> None:
        if len(self.other_trials) != 1:
            raise InvalidRuleParameter(
                self.rule_name, "other_trials", self.other_trials, "must be exactly one other run"
            )

    def judge(self, view: StepView) -> None:
        others = reader_of(self.other_trials[0]).views(view.step)
        other = next((each for each in others if (each.mode, each.mode_step) == (view.mode, view.mode_step)), others[0])
        mine, theirs = (_by_worker(each.select(self.selector, statistics=True)) for each in (view, other))
        if not mine and not theirs:
            raise self.nothing(view, self.selector)
        for name in sorted(mine.keys() ^ theirs.keys()):
            where = "this run" if name in mine else "the other run"
            self.report(f"{name} is in {where} only", tensor=name)
        for name in sorted(mine.keys() & theirs.keys()):
            here, there = mine[name], theirs[name]
            pairs = [(row, there[worker]) for worker, row in here.items() if worker in there]
            for row, of_other in pairs or zip(here.values(), there.values(), strict=False):
                self._compare(view, row, other, of_other)

    def _compare(self, view: StepView, row: SavedTensor, other: StepView, theirs: SavedTensor) -> None:
        if list(row.shape) != list(theirs.shape):
            self.fires(
                row, math.nan, None, f"has shape {tuple(row.shape)} here and {tuple(theirs.shape)} in the other run"
            )
            return
        if row.has_raw and theirs.has_raw:
            distance = _distance(view.values([row])[0], other.values([theirs])[0])
            if distance:
                self.fires(row, distance, _ATOL, f"differs from the other run by up to {distance:.3g}")
            return
        both = zip(STATISTICS, row.statistics or (), theirs.statistics or (), strict=False)
        saved = [(name, a, b) for name, a, b in both if a is not None and b is not None]
        if not saved:
            raise self.insufficient(row, self.selector, ())
        for name, a, b in saved:
            if not math.isclose(a, b, rel_tol=_RTOL, abs_tol=_ATOL) and not (math.isnan(a) and math.isnan(b)):
                self.fires(
                    row, abs(a - b), _ATOL, f"differs from the other run: its {name} is {a:.6g} here and {b:.6g} there"
                )
                return


class RankDivergence(BuiltinRule):
    """Fires if a worker diverges from the others.

    The norm of each of its tensors is compared with the median over all workers. The norm of a replicated weight must
    not differ from the median by more than `tolerance_percent` %. The norm of a gradient must not be more than `factor`
    times the median, or less than the median divided by `factor`. The rule is for data parallel training that saves
    every worker (`include_workers="all"`), not for sharded parameters. The statistic `l2` suffices.
    """

    collection_names: tuple[str, ...] = words("weights,biases", "tensors that must be equal in all workers")
    tensor_regex: tuple[str, ...] | None = regexes(None, "names of further tensors that must be equal")
    tolerance_percent: float = number(
        0.1, "fires if a worker's norm differs by more than this % from the median", least=0
    )
    gradient_collection: tuple[str, ...] = words("gradients", "tensors whose norms must be similar")
    factor: float = number(10.0, "fires if a gradient's norm differs from the median by more than this factor", least=1)

    def judge(self, view: StepView) -> None:
        replicated = Selector(self.collection_names, self.tensor_regex or ())
        gradients = Selector(self.gradient_collection)
        judged = [self._judge(view, replicated, False), self._judge(view, gradients, True)]
        if not any(judged):
            raise self.nothing(
                view, Selector((*self.collection_names, *self.gradient_collection), self.tensor_regex or ())
            )

    def _judge(self, view: StepView, selector: Selector, is_gradient: bool) -> bool:
        if not len(view.find(selector)):
            return False
        found, tensors = self.measured(view, selector, "l2"), view.tensors
        if len(tensors.distinct_workers) > 1:
            for _, of_name in groupby(range(len(found.rows)), lambda at: tensors.names[found.rows[at]]):
                self._compare(found.where([*of_name]), is_gradient)
        return True

    def _compare(self, of_name: Measured, is_gradient: bool) -> None:
        norms = of_name["l2"].tolist()
        shapes = {tuple(of_name.view.tensors.shapes[row]) for row in of_name.rows}
        finite = [norm for norm in norms if math.isfinite(norm)]
        if len(norms) < 2 or len(shapes) > 1 or not finite:
            return
        median = statistics.median(finite)
        for at, norm in enumerate(norms):
            ratio = norm / median if median else math.inf if norm else 1.0
            limit = self.factor if is_gradient else 1 + self.tolerance_percent / 100
            # The median of two workers is between them, so two workers are compared with each other.
            if len(norms) == 2 and not is_gradient:
                ratio = norm / min(finite) if min(finite) else ratio
            if not (1 / limit <= ratio <= limit):
                ((row, _),) = of_name.where([at])
                sentence = (
                    f"has norm {norm:.6g} in {row.worker}, and {median:.6g} in the middle of {len(norms)} workers"
                )
                self.fires(row, norm, median * limit, sentence)


def _opened(value: Any) -> Any:
    """Return trials. Paths, as in a configuration, are opened."""
    if isinstance(value, (str, os.PathLike)):
        return create_trial(value)
    if isinstance(value, Iterable) and not isinstance(value, Trial):
        return [_opened(each) for each in value]
    return value


def _by_worker(rows: Iterable[SavedTensor]) -> dict[str, dict[str, SavedTensor]]:
    """Return the rows of a step by tensor and worker."""
    by_name: dict[str, dict[str, SavedTensor]] = {}
    for row in rows:
        by_name.setdefault(row.name, {}).setdefault(row.worker, row)
    return by_name


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return 0 if the values are close, else the largest difference. It is 1 for texts, and infinite for NaN."""
    if a.dtype.kind in "SU" or b.dtype.kind in "SU":
        return 0.0 if np.array_equal(a, b) else 1.0
    dtype = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    a, b = np.asarray(a, dtype), np.asarray(b, dtype)
    if np.allclose(a, b, _RTOL, _ATOL, equal_nan=True):
        return 0.0
    with np.errstate(invalid="ignore"):
        distance = float(np.max(np.abs(a - b)))
    return math.inf if math.isnan(distance) else distance
