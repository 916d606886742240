"""Rules on gradients."""

from __future__ import annotations

import math
from collections import defaultdict, deque

from ...format.index_types import SavedTensor
from ..parameter import integer, number
from ..reader import Selector, StepView
from .base import BuiltinRule
from .robust import robust_score

_GRADIENTS = Selector(("gradients",))


class VanishingGradient(BuiltinRule):
    """Fires if a gradient is so small on average that its layer hardly learns.

    Evaluates the mean absolute value of every tensor of the collection `gradients`.
    """

    threshold: float = number(1e-7, "fires below this mean absolute value", least=0)

    def judge(self, view: StepView) -> None:
        for row, (mean,) in self.measured(view, _GRADIENTS, "abs_mean"):
            if mean < self.threshold:
                self.fires(row, mean, self.threshold, f"is {mean:.3g} on average, below {self.threshold:g}")


class GradientNormSpike(BuiltinRule):
    """Fires if the norm of all gradients of a worker together rises above its recent range.

    The rule compares the logarithm of the norm with the median of the last `window` steps. It measures the distance in
    units of their median absolute deviation.
    """

    window: int = integer(50, "steps that the norm is compared with", least=3)
    minimum: int = integer(10, "steps before the first comparison", least=3)
    threshold: float = number(8.0, "robust z-score above which it fires", least=0)
    factor: float = number(3.0, "the norm must also be above this many times the median", least=1)

    def reset(self) -> None:
        self._norms: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=self.window))

    def judge(self, view: StepView) -> None:
        norms: defaultdict[str, list[float]] = defaultdict(list)
        largest: dict[str, tuple[float, SavedTensor]] = {}
        for row, (norm,) in self.measured(view, _GRADIENTS, "l2"):
            norms[row.worker].append(norm)
            if row.worker not in largest or not norm <= largest[row.worker][0]:
                largest[row.worker] = (norm, row)
        for worker, of_worker in norms.items():
            self._compare(worker, math.sqrt(math.fsum(norm * norm for norm in of_worker)), largest[worker][1].name)

    def _compare(self, worker: str, norm: float, largest: str) -> None:
        before = self._norms[worker]
        if len(before) >= self.minimum:
            score, median = robust_score(_log(norm), before)
            typical = math.exp(median)
            if (score > self.threshold and norm > self.factor * typical) or not math.isfinite(norm):
                compared = f"is {norm:.3g}, after {typical:.3g} before"
                sentence = f"the norm of all gradients of {worker} {compared}; {largest} is the largest"
                self.report(sentence, tensor=largest, worker=worker, observed=norm, threshold=self.factor * typical)
        if math.isfinite(norm):
            before.append(_log(norm))


def _log(norm: float) -> float:
    return math.log(max(norm, 1e-300))
