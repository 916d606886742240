"""The rule that compares a tensor with its own past."""

from __future__ import annotations

from array import array

import numpy as np

from ...errors import InvalidRuleParameter
from ...format.index_types import SavedTensor
from ...statistics.definitions import STATISTICS
from ...statistics.past import scores_of_steps, usual_steps
from ...statistics.sums import Floats
from ..finding import three_digits
from ..parameter import integer, number, text
from ..reader import Measured, Selector, StepView
from .base import SelectingRule, training_mode
from .robust import relative_distance

_FEWEST_PEERS = 3
"""The fewest tensors whose median score is subtracted, as a change of the learning rate moves all scores."""
_EXACT_STEPS = 32
"""The steps that are scored exactly where the next one may be unusual."""
_GROWTH = 4
"""The factor by which the steps that are tried at once grow while they are usual."""
_TIMES_COMMON = 2.0
"""A score must differ from the median score by at least this many times the median score."""


class StatisticAnomaly(SelectingRule):
    """Fires if a tensor leaves its own past, and more so than the other tensors at that step.

    Compares a statistic with the median of its earlier values, in units of their spread, the interquartile range /
    1.349, as the heat map of the page does. Positive values are compared by their logarithm, and a spread below 1 %
    counts as 1 %. Where steps are saved more rarely than before, the spread is multiplied by the square of the ratio of
    the distances. The median score of all selected tensors is subtracted, since a change of the learning rate moves
    all. Evaluates the collections `weights` and `biases`, unless tensors are selected, at the steps of training.

    Once there are `window` earlier values, every second one is forgotten, in the order of their size, so that newer
    ones count more.
    """

    DEFAULT = Selector(("weights", "biases"))
    JUDGES_TOGETHER = True
    statistic: str = text("l2", "statistic that is compared with its past")
    threshold: float = number(10.0, "fires if the score is more than this above or below that of the others", least=0)
    minimum: int = integer(10, "saved steps before the first comparison", least=3)
    window: int = integer(2048, "the most earlier values of a tensor that are kept", least=32)

    def check(self) -> None:
        if self.statistic not in STATISTICS:
            raise InvalidRuleParameter(
                self.rule_name, "statistic", self.statistic, f"one of {', '.join(STATISTICS)} is accepted"
            )

    def reset(self) -> None:
        self._past: dict[tuple[str, str], array[float]] = {}
        self._steps: list[int] = []

    def judge(self, view: StepView) -> None:
        if view.mode is not training_mode(self.reader.modes()):
            raise self.nothing(view, self.selector)
        found = self.measured(view, self.selector, self.statistic)
        view.rows(found.rows[:1])  # raises before anything is stored
        size, step = len(found.rows) // len(view.infos), 0
        numbers = [info.mode_step for info in view.infos]
        values = found[self.statistic].reshape(len(view.infos), size)
        pasts = [self._past.setdefault(key, array("d")) for key in found.where(slice(size)).keys]
        tried = _EXACT_STEPS
        while size and step < len(values):
            if len(self._steps) == self.window:
                self._forget_half()
            until = step + min(tried, self.window - len(self._steps))
            # The median score is below half of the threshold, too, so that no difference reaches the threshold.
            if usual := usual_steps(values[step:until], pasts, 0.499 * self.threshold):
                self._steps += numbers[step : step + usual]
                step, tried = step + usual, _GROWTH * tried
                continue
            tried = _EXACT_STEPS
            exact = scores_of_steps(values[step : min(until, step + tried)], pasts, self.minimum)
            for scores, medians in zip(*exact, strict=True):
                here = found.where(slice(step * size, (step + 1) * size))
                self._judge_step(here, scores, medians, numbers[step])
                step += 1

    def _forget_half(self) -> None:
        del self._steps[1::2]
        for past in self._past.values():
            if len(past) > self.window // 2:  # others would become too short to be compared with
                del past[1::2]

    def _judge_step(self, found: Measured, scores: Floats, medians: Floats, step: int) -> None:
        scores = scores / relative_distance(step, self._steps) ** 2
        self._steps.append(step)
        known = scores[~np.isnan(scores)]
        common = float(np.median(known)) if len(known) >= _FEWEST_PEERS else 0.0
        left = np.flatnonzero(np.absolute(scores - common) > max(self.threshold, _TIMES_COMMON * abs(common)))
        for (row, (value,)), at in zip(found.where(left), left.tolist(), strict=True):
            self._fire(row, value, float(scores[at]), float(medians[at]))

    def _fire(self, row: SavedTensor, value: float, score: float, median: float) -> None:
        apart = f"{three_digits(abs(score))} deviations {'above' if score > 0 else 'below'} the usual {median:.4g}"
        self.fires(row, score, self.threshold, f"left its own past: its {self.statistic} is {value:.4g}, {apart}")
