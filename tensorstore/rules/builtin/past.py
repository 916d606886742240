"""The rule that compares a tensor with its own past."""

from __future__ import annotations

import math
import statistics
from bisect import insort
from collections import defaultdict

from ...errors import InvalidRuleParameter
from ...format.index_types import SavedTensor
from ...statistics.definitions import STATISTICS
from ...statistics.past import past_score
from ..parameter import integer, number, text
from ..reader import Selector, StepView
from .base import SelectingRule, training_mode

_FEWEST_PEERS = 3
"""The fewest tensors whose median score is common to all, as that of a change of the learning rate is."""
_TIMES_COMMON = 2.0
"""A score differs from the common one by at least this many times the common one."""


class StatisticAnomaly(SelectingRule):
    """Fires if a tensor leaves its own past, and more so than the other tensors at that step.

    Compares a statistic with the median of its earlier values, in units of their spread, the interquartile range /
    1.349, as the heat map of the page does. Positive values are compared by their logarithm, and a spread below 1 %
    counts as 1 %. The median score of all selected tensors is subtracted, since a change of the learning rate moves
    all. Evaluates the collections `weights` and `biases`, unless tensors are selected, at the steps of training.
    """

    DEFAULT = Selector(("weights", "biases"))
    statistic: str = text("l2", "statistic that is compared with its past")
    threshold: float = number(10.0, "fires if the score is more than this above or below that of the others", least=0)
    minimum: int = integer(10, "saved steps before the first comparison", least=3)

    def check(self) -> None:
        if self.statistic not in STATISTICS:
            raise InvalidRuleParameter(
                self.rule_name, "statistic", self.statistic, f"one of {', '.join(STATISTICS)} is accepted"
            )

    def reset(self) -> None:
        self._past: defaultdict[tuple[str, str], list[float]] = defaultdict(list)

    def judge(self, view: StepView) -> None:
        if view.mode is not training_mode(self.reader.modes()):
            raise self.nothing(view, self.selector)
        scored: list[tuple[int, float, float, float]] = []
        found = self.measured(view, self.selector, self.statistic)
        for at, (key, value) in enumerate(zip(found.keys, found[self.statistic].tolist(), strict=True)):
            past = self._past[key]
            if not math.isfinite(value):
                continue
            if len(past) >= self.minimum:
                scored.append((at, value, *past_score(value, past)))
            insort(past, value)
        common = statistics.median(each[2] for each in scored) if len(scored) >= _FEWEST_PEERS else 0.0
        limit = max(self.threshold, _TIMES_COMMON * abs(common))
        left = {at: each for at, *each in scored if abs(each[1] - common) > limit}
        for (row, _), each in zip(found.where([*left]), left.values(), strict=True):
            self._fire(row, *each)

    def _fire(self, row: SavedTensor, value: float, score: float, median: float) -> None:
        compared = f"{self.statistic} {value:.4g}, usual was {median:.4g}, {abs(score):.1f} deviations"
        direction = "above" if score > 0 else "below"
        self.fires(row, score, self.threshold, f"left its own past: it has {compared} {direction}")
