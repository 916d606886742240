"""Rules on gradients."""

from __future__ import annotations

import math
from collections import defaultdict, deque

import numpy as np

from ...dtypes import Array
from ...snapshot.saved_steps import StepInfo
from ..parameter import integer, number
from ..reader import Measured, Selector, StepView
from .base import BuiltinRule
from .robust import relative_distance, robust_score

_GRADIENTS = Selector(("gradients",))


class VanishingGradient(BuiltinRule):
    """Fires if a gradient is so small on average that its layer hardly learns.

    Evaluates the mean absolute value of every tensor of the collection `gradients`.
    """

    JUDGES_TOGETHER = True
    threshold: float = number(1e-7, "fires below this mean absolute value", least=0)

    def judge(self, view: StepView) -> None:
        found = self.measured(view, _GRADIENTS, "abs_mean")
        for row, (mean,) in found.where(found["abs_mean"] < self.threshold):
            self.fires(row, mean, self.threshold, f"is {mean:.3g} on average, below {self.threshold:g}")


class GradientNormSpike(BuiltinRule):
    """Fires if the norm of all gradients of a worker together rises above its recent range.

    The rule compares the logarithm of the norm with the median of the last `window` steps. It measures the distance in
    units of their median absolute deviation. Where steps are saved more rarely than before, this unit is multiplied by
    the ratio of the distances, since norms change with time.
    """

    JUDGES_TOGETHER = True
    window: int = integer(50, "steps that the norm is compared with", least=3)
    minimum: int = integer(10, "steps before the first comparison", least=3)
    threshold: float = number(8.0, "robust z-score above which it fires", least=0)
    factor: float = number(3.0, "the norm must also be above this many times the median", least=1)

    def reset(self) -> None:
        self._norms: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=self.window))
        self._steps: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=self.window))

    def judge(self, view: StepView) -> None:
        found = self.measured(view, _GRADIENTS, "l2")
        size, squares = len(found.rows) // len(view.infos), np.square(found["l2"])
        workers = view.tensors.workers[view.tensor_rows(found.rows[:size])]
        of_workers = [(each, np.flatnonzero(workers == each)) for each in dict.fromkeys(workers.tolist())]
        for step, info in enumerate(view.infos):
            for worker, of_worker in of_workers:
                chosen = step * size + of_worker
                norm = math.sqrt(math.fsum(squares[chosen].tolist()))
                self._compare(worker, norm, found, chosen, info)

    def _compare(self, worker: str, norm: float, found: Measured, chosen: Array, info: StepInfo) -> None:
        before, steps, step = self._norms[worker], self._steps[worker], info.global_step
        if len(before) >= self.minimum:
            score, median = robust_score(_log(norm), before)
            score /= relative_distance(info.mode_step, steps)
            typical = math.exp(median)
            if (score > self.threshold and norm > self.factor * typical) or not math.isfinite(norm):
                largest = _largest(found.where(chosen))
                compared = f"is {norm:.3g}, after {typical:.3g} before"
                sentence = f"the norm of all gradients of {worker} {compared}; {largest} is the largest"
                limit = self.factor * typical
                self.report(sentence, tensor=largest, worker=worker, observed=norm, threshold=limit, step=step)
        if math.isfinite(norm):
            before.append(_log(norm))
            steps.append(info.mode_step)


def _largest(gradients: Measured) -> str:
    """Return the name of the gradient with the largest norm, after the last one without a norm."""
    largest = math.nan, ""
    for (name, _), norm in zip(gradients.keys, gradients["l2"].tolist(), strict=True):
        if not norm <= largest[0]:
            largest = norm, name
    return largest[1]


def _log(norm: float) -> float:
    return math.log(max(norm, 1e-300))
